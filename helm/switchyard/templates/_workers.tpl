{{/* Workers: how many a pool has, what they are called, and their Pods, whichever kind of object makes these. */}}

{{/* The Pods that a pool starts with. A replica of a StatefulSet is a Pod, one of the other kinds a group. */}}
{{- define "switchyard.podsOf" -}}
{{- $replicas := ternary .autoscaling.minReplicas .replicas .autoscaling.enabled -}}
{{- mul $replicas (ternary 1 .group.size (eq .workloadKind "StatefulSet")) -}}
{{- end -}}

{{/* What comes after the Pod's name in the id of a rank: (dict "pool" $pool "rank" 1). In a group, POD-1 is a Pod. */}}
{{- define "switchyard.rankSuffix" -}}
{{- if gt (int .rank) 0 -}}
{{- ternary "-" "-rank" (eq .pool.workloadKind "StatefulSet") }}{{ .rank -}}
{{- end -}}
{{- end -}}

{{/* The release's DisaggregatedSet. Its Pods are called NAME-REVISION-POOL-GROUP-INDEX, which has to fit. */}}
{{- define "switchyard.disaggregatedName" -}}
{{- $name := include "switchyard.fullname" . -}}
{{- if gt (len $name) 23 -}}
  {{- $name = printf "%s-%s" (trunc 14 $name | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* The names of the pools of a kind, as a JSON list: (dict "root" $ "kind" "DisaggregatedSet"). */}}
{{- define "switchyard.poolsOfKind" -}}
{{- $names := list -}}
{{- $kind := .kind -}}
{{- range $name, $pool := include "switchyard.pools" .root | fromJson -}}
  {{- if eq $pool.workloadKind $kind -}}{{- $names = append $names $name -}}{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The spec of a LeaderWorkerSet: groups of `group.size` Pods that are alike. A Pod that fails starts again by itself,
     since workers need no leader: (dict "root" $ "name" <the pool's> "pool" $pool "pod" <its template>). */}}
{{- define "switchyard.groupSpec" -}}
{{- with include "switchyard.replicas" . -}}
{{ . }}
{{ end -}}
startupPolicy: LeaderCreated
networkConfig: {subdomainPolicy: Shared}
rolloutStrategy:
  type: RollingUpdate
  rollingUpdateConfiguration: {maxUnavailable: {{ ternary 0 1 (gt (int .pool.group.maxSurge) 0) }}, maxSurge: {{ .pool.group.maxSurge }}}
leaderWorkerTemplate:
  size: {{ .pool.group.size }}
  restartPolicy: {{ .pool.group.restartPolicy }}
  workerTemplate:
    {{- .pod | nindent 4 }}
{{- end -}}

{{/* Of a group that wants a topology domain of its own, for the metadata of its LeaderWorkerSet. */}}
{{- define "switchyard.groupAnnotations" -}}
{{- with .group.exclusiveTopology }}
annotations: {leaderworkerset.sigs.k8s.io/exclusive-topology: {{ . | quote }}}
{{- end }}
{{- end -}}

{{/* The template of a pool's Pods: (dict "root" $ "name" <of the pool's objects> "poolName" ... "pool" ... "file" <the
     workers' configuration>). */}}
{{- define "switchyard.workerPod" -}}
{{- $root := .root -}}
{{- $name := .name -}}
{{- $pool_name := .poolName -}}
{{- $pool := .pool -}}
{{- $file := .file -}}
{{- $selector := include "switchyard.selector" (dict "root" $root "component" "worker" "pool" $pool_name) -}}
{{- $preset := include "switchyard.preset" $pool.device.preset | fromYaml -}}
{{- $ranks := int $pool.ranksPerPod -}}
metadata:
  labels:
    {{- $selector | nindent 4 }}
    {{- with $pool.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ toYaml $file | sha256sum | quote }}
    {{- with $pool.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ $name }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add $pool.leaveTimeoutSeconds $pool.leaveAloneTimeoutSeconds 15 }}
  securityContext: {{- include "switchyard.podSecurityOf" $pool.privileges | nindent 4 }}
  {{- include "switchyard.pull" $root | nindent 2 }}
  {{- $scheduled := deepCopy $pool }}
  {{- with $preset.taint }}
  {{- $_ := set $scheduled "tolerations" (append $pool.tolerations (dict "key" . "operator" "Exists" "effect" "NoSchedule")) }}
  {{- end }}
  {{- include "switchyard.scheduling" (dict "root" $root "pod" $scheduled) | nindent 2 }}
  {{- with $pool.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  topologySpreadConstraints:
  {{- if $pool.topologySpreadConstraints }}
  {{- toYaml $pool.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- $selector | nindent 8 }}
  {{- end }}
  {{- with $pool.resourceClaims }}
  resourceClaims: {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- $copies := include "switchyard.modelCopies" $root }}
  {{- if or $copies $pool.doctor.enabled }}
  initContainers:
  {{- with $copies }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if $pool.doctor.enabled }}
  {{- include "switchyard.doctor" (dict "root" $root "pool" $pool) | nindent 2 }}
  {{- end }}
  {{- end }}
  containers:
  {{- range $rank := until $ranks }}
  {{- $suffix := ternary (printf "-%d" $rank) "" (gt $rank 0) }}
  {{- $resources := include "switchyard.presetResources" (dict "pool" $pool "resource" $preset.resource) | fromJson }}
  {{- with $pool.resourceClaims }}
  {{- $claims := list }}
  {{- range . }}{{ $claims = append $claims (dict "name" .name) }}{{ end }}
  {{- $_ := set $resources "claims" $claims }}
  {{- end }}
  - name: worker{{ $suffix }}
    image: {{ include "switchyard.image" (dict "root" $root "name" (default "worker" $preset.image) "own" $pool.image) | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args:
    - --config=/etc/switchyard/worker.yaml
    - --id=$(POD_NAME){{ include "switchyard.rankSuffix" (dict "pool" $pool "rank" $rank) }}
    - --listen=$(POD_IP):{{ add $pool.port $rank }}
    - --system-port={{ add $pool.systemPort $rank }}
    env:
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    - name: POD_IP
      valueFrom: {fieldRef: {fieldPath: status.podIP}}
    {{- with $pool.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    ports:
    - {name: grpc{{ $suffix }}, containerPort: {{ add $pool.port $rank }}}
    - {name: system{{ $suffix }}, containerPort: {{ add $pool.systemPort $rank }}}
    securityContext: {{- include "switchyard.containerSecurityOf" $pool.privileges | nindent 6 }}
    resources: {{- toYaml $resources | nindent 6 }}
    {{- include "switchyard.probes" (dict "root" $root "port" (add $pool.port $rank) "systemPort" (add $pool.systemPort $rank) "service" "switchyard.worker") | nindent 4 }}
    volumeMounts:
    - {name: config, mountPath: /etc/switchyard, readOnly: true}
    - {name: shm, mountPath: /dev/shm}
    {{- with include "switchyard.tlsMount" $root }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- if $pool.ringDir }}
    - {name: rings, mountPath: /run/switchyard-rings}
    {{- end }}
    {{- include "switchyard.modelMounts" $root | nindent 4 }}
    {{- with $pool.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  volumes:
  - name: config
    configMap: {name: {{ $name }}}
  {{- with include "switchyard.tlsVolume" (dict "root" $root "holder" $pool_name "tenants" true) }}
  {{- . | nindent 2 }}
  {{- end }}
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: {{ $pool.shm.sizeLimit | quote }}}
  {{- with $pool.ringDir }}
  - name: rings
    hostPath: {path: {{ . | quote }}, type: Directory}
  {{- end }}
  {{- include "switchyard.modelVolumes" $root | nindent 2 }}
  {{- with $pool.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
