{{/* The coordinator: its configuration file, its Pod, and where its plans are. */}}

{{/* The file, as JSON. */}}
{{- define "switchyard.coordinatorFile" -}}
{{- $coordinator := .Values.coordinator -}}
{{- $host := include "switchyard.coordinatorHost" . -}}
{{- $hosts := printf "%s,%s-coordinator.%s" $host (include "switchyard.fullname" .) .Release.Namespace -}}
{{- $network := dict "listen" (printf "0.0.0.0:%d" (int $coordinator.port)) "system_port" (int $coordinator.systemPort) "page_hosts" $hosts -}}
{{- $file := merge (dict "network" $network "store" (dict "location" "sqlite:/var/lib/switchyard/plans.sqlite")) (deepCopy $coordinator.config) -}}
{{- with include "switchyard.securityFile" . | fromJson -}}{{- $_ := set $file "security" . -}}{{- end -}}
{{- toJson $file -}}
{{- end -}}

{{- define "switchyard.coordinatorClaim" -}}
{{- default (printf "%s-coordinator" (include "switchyard.fullname" .)) .Values.coordinator.persistence.existingClaim -}}
{{- end -}}

{{/* Identifies the plans. When this text changes, they are lost and the models must be applied again: without a claim, plans
     end with the Pod. */}}
{{- define "switchyard.plans" -}}
{{- if .Values.coordinator.persistence.enabled -}}
{{- include "switchyard.coordinatorClaim" . -}}
{{- else -}}
{{- include "switchyard.coordinatorPod" . -}}
{{- end -}}
{{- end -}}

{{/* The template of the Pod. */}}
{{- define "switchyard.coordinatorPod" -}}
{{- $name := printf "%s-coordinator" (include "switchyard.fullname" .) -}}
{{- $coordinator := .Values.coordinator -}}
metadata:
  labels:
    {{- include "switchyard.selector" (dict "root" . "component" "coordinator") | nindent 4 }}
    {{- with $coordinator.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include "switchyard.coordinatorFile" . | fromJson | toYaml | sha256sum | quote }}
    {{- with $coordinator.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ $name }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 30
  securityContext: {{- include "switchyard.podSecurity" . | nindent 4 }}
  {{- include "switchyard.pull" . | nindent 2 }}
  {{- include "switchyard.scheduling" (dict "root" . "pod" $coordinator) | nindent 2 }}
  {{- with include "switchyard.modelCopies" . }}
  initContainers: {{- . | nindent 2 }}
  {{- end }}
  containers:
  - name: coordinator
    image: {{ include "switchyard.image" (dict "root" . "name" "coordinator") | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [--config=/etc/switchyard/coordinator.yaml]
    ports:
    - {name: grpc, containerPort: {{ $coordinator.port }}}
    - {name: system, containerPort: {{ $coordinator.systemPort }}}
    securityContext: {{- include "switchyard.containerSecurity" . | nindent 6 }}
    resources: {{- toYaml $coordinator.resources | nindent 6 }}
    {{- include "switchyard.probes" (dict "root" . "port" $coordinator.port "systemPort" $coordinator.systemPort "service" "switchyard.coordinator") | nindent 4 }}
    volumeMounts:
    - {name: config, mountPath: /etc/switchyard, readOnly: true}
    - {name: store, mountPath: /var/lib/switchyard}
    {{- with include "switchyard.tlsMount" . }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- include "switchyard.modelMounts" . | nindent 4 }}
  volumes:
  - name: config
    configMap: {name: {{ $name }}}
  {{- with include "switchyard.tlsVolume" (dict "root" . "holder" "coordinator" "tenants" true) }}
  {{- . | nindent 2 }}
  {{- end }}
  - name: store
    {{- if $coordinator.persistence.enabled }}
    persistentVolumeClaim: {claimName: {{ include "switchyard.coordinatorClaim" . | quote }}}
    {{- else }}
    emptyDir: {}
    {{- end }}
  {{- include "switchyard.modelVolumes" . | nindent 2 }}
{{- end -}}
