{{/* Parts of Pods. */}}

{{- define "switchyard.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "switchyard.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The same with what `privileges` of a pool and of the tests says: none or netAdmin. Kubernetes gives
     added capabilities to root only. */}}
{{- define "switchyard.podSecurityOf" -}}
{{- if eq . "netAdmin" -}}
runAsUser: 0
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- else -}}
{{- include "switchyard.podSecurity" . -}}
{{- end -}}
{{- end -}}

{{- define "switchyard.containerSecurityOf" -}}
{{- if eq . "netAdmin" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL], add: [NET_ADMIN]}
{{- else -}}
{{- include "switchyard.containerSecurity" . -}}
{{- end -}}
{{- end -}}

{{- define "switchyard.pull" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Where Pods run: (dict "root" $ "pod" <coordinator's values or a pool>). */}}
{{- define "switchyard.scheduling" -}}
{{- with .pod.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .pod.schedulerName }}
schedulerName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Health: (dict "root" $ "port" ... "systemPort" ... "service" ...). By gRPC, live is the name "" and ready
     the program's. The kubelet has no certificate, so that with mutual TLS it asks the system port. Ports open
     before a checkpoint is read, so that starting needs no budget for the model. */}}
{{- define "switchyard.probes" -}}
{{- $live := printf "grpc: {port: %d}" (int .port) -}}
{{- $ready := printf "grpc: {port: %d, service: %s}" (int .port) .service -}}
{{- if include "switchyard.secured" .root -}}
  {{- $live = printf "httpGet: {path: /livez, port: %d}" (int .systemPort) -}}
  {{- $ready = printf "httpGet: {path: /readyz, port: %d}" (int .systemPort) -}}
{{- end -}}
startupProbe:
  {{ $live }}
  periodSeconds: 1
  failureThreshold: 120
livenessProbe:
  {{ $live }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  {{ $ready }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}

{{/* Volumes with the models, below /models. */}}
{{- define "switchyard.modelVolumes" -}}
{{- range $name, $model := include "switchyard.models" . | fromJson }}
{{- $artifact := $model.artifact }}
- name: model-{{ $name }}
{{- if eq $artifact.source "image" }}
  emptyDir: {sizeLimit: {{ include "switchyard.copyMi" $model }}Mi}
{{- else if eq $artifact.source "imageVolume" }}
  image: {reference: {{ $artifact.image | quote }}, pullPolicy: {{ $.Values.image.pullPolicy }}}
{{- else if eq $artifact.source "pvc" }}
  persistentVolumeClaim: {claimName: {{ $artifact.claim | quote }}, readOnly: true}
{{- else if eq $artifact.source "hostPath" }}
  hostPath: {path: {{ $artifact.hostPath | quote }}, type: Directory}
{{- end }}
{{- end }}
{{- end -}}

{{- define "switchyard.modelMounts" -}}
{{- range $name, $model := include "switchyard.models" . | fromJson }}
- {name: model-{{ $name }}, mountPath: /models/{{ $name }}, readOnly: true}
{{- end }}
{{- end -}}

{{/* The space for a copy of a model, in MiB: its size and a tenth. */}}
{{- define "switchyard.copyMi" -}}
{{- ceil (mulf 1126 .sizeGiB) | int64 -}}
{{- end -}}

{{/* Init containers that copy checkpoints out of images to the machine's disk. Each requests the space of all copies, since a
     Pod requests the maximum of its init containers and not their sum. */}}
{{- define "switchyard.modelCopies" -}}
{{- $disk := 0 }}
{{- range $name, $model := include "switchyard.models" . | fromJson }}
{{- if eq $model.artifact.source "image" }}{{ $disk = add $disk (include "switchyard.copyMi" $model | int64) }}{{ end }}
{{- end }}
{{- range $name, $model := include "switchyard.models" . | fromJson }}
{{- if eq $model.artifact.source "image" }}
- name: copy-{{ $name }}
  image: {{ $model.artifact.image | quote }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  command: {{ default (list "/usr/bin/cp" "-r" "/model/." "/target") $model.artifact.command | toJson }}
  securityContext: {{- include "switchyard.containerSecurity" $ | nindent 4 }}
  resources:
    requests: {cpu: 100m, memory: 64Mi, ephemeral-storage: {{ $disk }}Mi}
    limits: {memory: 256Mi}
  volumeMounts:
  - {name: model-{{ $name }}, mountPath: /target}
{{- end }}
{{- end }}
{{- end -}}

{{/* An init container of a pool's Pods: what keeps a worker from serving ends it, and its log says what to do. It has
     the volumes of the workers, and asks nobody over the network. */}}
{{- define "switchyard.doctor" -}}
- name: doctor
  image: {{ include "switchyard.image" (dict "root" .root "name" "tools") | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [/usr/bin/syctl, doctor]
  args:
  - --scope=node
  - --output=table
  {{- if include "switchyard.secured" .root }}
  - --tls-dir=/etc/switchyard-tls
  {{- end }}
  {{- if .pool.ringDir }}
  - --ring-dir=/run/switchyard-rings
  {{- end }}
  {{- $models := include "switchyard.models" .root | fromJson }}
  {{- range $name, $model := $models }}
  {{- /* One of several that is damaged must not keep the others from being served. */}}
  {{- if eq (len $models) 1 }}
  - {{ printf "--checkpoint=%s" (include "switchyard.checkpoint" (dict "name" $name "model" $model)) | quote }}
  {{- end }}
  {{- end }}
  securityContext: {{- include "switchyard.containerSecurity" .root | nindent 4 }}
  resources:
    requests: {cpu: 50m, memory: 64Mi}
    limits: {memory: 256Mi}
  volumeMounts:
  - {name: shm, mountPath: /dev/shm}
  {{- with include "switchyard.tlsMount" .root }}
  {{- . | trim | nindent 2 }}
  {{- end }}
  {{- if .pool.ringDir }}
  - {name: rings, mountPath: /run/switchyard-rings}
  {{- end }}
  {{- with include "switchyard.modelMounts" .root }}
  {{- . | trim | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The folder of a checkpoint. */}}
{{- define "switchyard.checkpoint" -}}
/models/{{ .name }}{{ with .model.artifact.path }}/{{ . }}{{ end }}
{{- end -}}
