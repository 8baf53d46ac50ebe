{{/* What the schema cannot say: keys of other charts and combinations that cannot work, each with what to
     write instead. */}}

{{- define "switchyard.instead" -}}
{{- fail (printf "\n%s\nBefore:\n  %s\nAfter:\n  %s" .why .before .after) -}}
{{- end -}}

{{- define "switchyard.checkKeys" -}}
{{- $moved := list
  (list "replicaCount" "replicaCount: 4" "pools: {workers: {replicas: 4}}" "Workers belong to pools.")
  (list "workers" "workers: {replicas: 4}" "pools: {workers: {replicas: 4}}" "Workers belong to pools.")
  (list "worker" "worker: {replicas: 4}" "pools: {workers: {replicas: 4}}" "Workers belong to pools.")
  (list "prefill" "prefill: {replicas: 2}" "pools: {prefill: {phase: prefill, replicas: 2}}" "Workers belong to pools.")
  (list "decode" "decode: {replicas: 2}" "pools: {decode: {phase: decode, replicas: 2}}" "Workers belong to pools.")
  (list "autoscaling" "autoscaling: {enabled: true}" "pools: {workers: {autoscaling: {enabled: true}}}" "Each pool scales by itself.")
  (list "modelArtifacts" "modelArtifacts: {uri: \"pvc://weights/chat\"}" "models: {chat: {sizeGiB: 60, artifact: {source: pvc, claim: weights, path: chat}}}" "A checkpoint belongs to its model.")
  (list "deployment" "deployment: {name: chat}" "models: {chat: {...}}" "Deployments are models here.")
  (list "shmSize" "shmSize: 2Gi" "poolDefaults: {shm: {sizeLimit: 2Gi}}" "Shared memory belongs to a pool.")
  (list "serviceMonitor" "serviceMonitor: {enabled: true}" "monitoring: {podMonitor: {enabled: true}}" "Pods are scraped, not Services.")
  (list "prometheusRule" "prometheusRule: {enabled: true}" "monitoring: {prometheusRule: {enabled: true}}" "What observes is below monitoring.")
  (list "resources" "resources: {...}" "coordinator: {resources: {...}}, poolDefaults: {resources: {...}}" "Each role has resources of its own.")
  (list "nodeSelector" "nodeSelector: {...}" "coordinator: {nodeSelector: {...}}, poolDefaults: {nodeSelector: {...}}" "Each role is scheduled by itself.")
  (list "etcd" "etcd: {endpoints: [...]}" "coordinator: {replicas: 1}" "The coordinator keeps its plans in a file of its volume.")
  (list "tls" "tls: {enabled: true}" "security: {certificates: {source: job}}" "Certificates belong to security.")
  (list "workloadKind" "workloadKind: LeaderWorkerSet" "poolDefaults: {workloadKind: LeaderWorkerSet}" "Each pool has a kind.")
  (list "multinode" "multinode: true" "poolDefaults: {workloadKind: LeaderWorkerSet, group: {size: 2}}" "Groups of Pods belong to a pool.") -}}
{{- range $moved -}}
  {{- if hasKey $.Values (index . 0) -}}
    {{- include "switchyard.instead" (dict "why" (printf "%s: no such key. %s" (index . 0) (index . 3)) "before" (index . 1) "after" (index . 2)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of a Service begins with the release's and must be a DNS label that begins with a letter. */}}
{{- define "switchyard.checkRelease" -}}
{{- $name := include "switchyard.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
  {{- $better := regexReplaceAll "[^a-z0-9]+" .Release.Name "-" -}}
  {{- if regexMatch "^[0-9]" $better -}}{{- $better = printf "r%s" $better -}}{{- end -}}
  {{- include "switchyard.instead" (dict "why" (printf "fullnameOverride: release %s: names of Services would begin with %s. They must begin with a letter and consist of lowercase letters, digits and hyphens. Rename the release or set fullnameOverride." .Release.Name $name) "before" (printf "helm install %s" .Release.Name) "after" (printf "helm install %s, or fullnameOverride: %s" $better $better)) -}}
{{- end -}}
{{- end -}}

{{- define "switchyard.checkCoordinator" -}}
{{- if ne (int .Values.coordinator.replicas) 1 -}}
  {{- include "switchyard.instead" (dict "why" (printf "coordinator.replicas: %d coordinators need a store that they share, such as etcd, and the coordinator has none: its store is a file that one process may open. Sessions and workers go on while the one Pod starts again." (int .Values.coordinator.replicas)) "before" (printf "coordinator: {replicas: %d}" (int .Values.coordinator.replicas)) "after" "coordinator: {replicas: 1}") -}}
{{- end -}}
{{- $persistence := .Values.coordinator.persistence -}}
{{- if and $persistence.existingClaim (not $persistence.enabled) -}}
  {{- include "switchyard.instead" (dict "why" "coordinator.persistence: an existingClaim is named and persistence is off." "before" "persistence: {enabled: false, existingClaim: plans}" "after" "persistence: {existingClaim: plans}") -}}
{{- end -}}
{{- if eq (int .Values.coordinator.port) (int .Values.coordinator.systemPort) -}}
  {{- include "switchyard.instead" (dict "why" "coordinator: port and systemPort are one port." "before" (printf "coordinator: {port: %d, systemPort: %d}" (int .Values.coordinator.port) (int .Values.coordinator.port)) "after" "coordinator: {port: 7700, systemPort: 7701}") -}}
{{- end -}}
{{- end -}}

{{/* Ports that a network policy can name and that the Pod does not use otherwise. */}}
{{- define "switchyard.checkDataPorts" -}}
{{- $pool := .pool -}}
{{- if $pool.dataPorts -}}
  {{- $first := splitList "-" $pool.dataPorts | first | int -}}
  {{- $last := splitList "-" $pool.dataPorts | last | int -}}
  {{- $before := printf "%s: {dataPorts: %s}" .name $pool.dataPorts -}}
  {{- $after := printf "%s: {dataPorts: 20000-20063}" .name -}}
  {{- if or (lt $first 1024) (lt $last $first) (gt $last 65535) -}}
    {{- include "switchyard.instead" (dict "why" (printf "pools.%s.dataPorts: %s must be FIRST-LAST, with both from 1024 to 65535 and FIRST not above LAST." .name $pool.dataPorts) "before" $before "after" $after) -}}
  {{- end -}}
  {{- range $key := list "port" "systemPort" -}}
    {{- $port := get $pool $key | int -}}
    {{- if and (ge $port $first) (le $port $last) -}}
      {{- include "switchyard.instead" (dict "why" (printf "pools.%s.dataPorts: %s includes %s, %d." $.name $pool.dataPorts $key $port) "before" $before "after" $after) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "switchyard.checkPool" -}}
{{- $at := printf "pools.%s" .name -}}
{{- $pool := .pool -}}
{{- if $pool.rdma.enabled -}}
  {{- include "switchyard.instead" (dict "why" (printf "%s.rdma: rows travel over TCP, and no program uses RDMA. The IP interface of an adapter can be used." $at) "before" (printf "%s: {rdma: {enabled: true}}" .name) "after" (printf "%s: {netDevices: net1}" .name)) -}}
{{- end -}}
{{- if and (hasPrefix "ascend" $pool.device.preset) (not (and $pool.image.repository $pool.device.argument)) -}}
  {{- include "switchyard.instead" (dict "why" (printf "%s.device.preset: %s: no worker of this project has an Ascend device. Name an image of your own whose worker has one, and what its --device gets." $at $pool.device.preset) "before" (printf "%s: {device: {preset: %s}}" .name $pool.device.preset) "after" (printf "%s: {device: {preset: %s, argument: KIND}, image: {repository: HOST/NAME}}" .name $pool.device.preset)) -}}
{{- end -}}
{{- if and $pool.autoscaling.enabled .replicas -}}
  {{- include "switchyard.instead" (dict "why" (printf "%s: replicas would undo at each upgrade what autoscaling has done." $at) "before" (printf "%s: {replicas: 4, autoscaling: {enabled: true}}" .name) "after" (printf "%s: {autoscaling: {enabled: true, minReplicas: 4}}" .name)) -}}
{{- end -}}
{{- if and $pool.autoscaling.enabled (gt (int $pool.autoscaling.minReplicas) (int $pool.autoscaling.maxReplicas)) -}}
  {{- include "switchyard.instead" (dict "why" (printf "%s.autoscaling: minReplicas is larger than maxReplicas." $at) "before" (printf "autoscaling: {minReplicas: %d, maxReplicas: %d}" (int $pool.autoscaling.minReplicas) (int $pool.autoscaling.maxReplicas)) "after" (printf "autoscaling: {minReplicas: %d, maxReplicas: %d}" (int $pool.autoscaling.maxReplicas) (int $pool.autoscaling.minReplicas))) -}}
{{- end -}}
{{- if and $pool.autoscaling.enabled (eq $pool.autoscaling.kind "keda") (not $pool.autoscaling.triggers) -}}
  {{- include "switchyard.instead" (dict "why" (printf "%s.autoscaling: KEDA needs triggers." $at) "before" "autoscaling: {kind: keda}" "after" "autoscaling: {kind: keda, triggers: [{type: prometheus, metadata: {...}}]}") -}}
{{- end -}}
{{- if and $pool.dataPorts (gt (int $pool.ranksPerPod) 1) -}}
  {{- include "switchyard.instead" (dict "why" (printf "%s.dataPorts: the %d ranks of a Pod cannot share one range of ports." $at (int $pool.ranksPerPod)) "before" (printf "%s: {ranksPerPod: %d, dataPorts: %s}" .name (int $pool.ranksPerPod) $pool.dataPorts) "after" (printf "%s: {ranksPerPod: %d}" .name (int $pool.ranksPerPod))) -}}
{{- end -}}
{{- include "switchyard.checkDataPorts" . -}}
{{- $first := int $pool.port -}}
{{- $other := int $pool.systemPort -}}
{{- $ranks := int $pool.ranksPerPod -}}
{{- if and (lt $first (int (add $other $ranks))) (lt $other (int (add $first $ranks))) -}}
  {{- include "switchyard.instead" (dict "why" (printf "%s: port and systemPort overlap, since each of the %d ranks has the next port." $at $ranks) "before" (printf "%s: {port: %d, systemPort: %d}" .name $first $other) "after" (printf "%s: {port: %d, systemPort: %d}" .name $first (int (add $first 100)))) -}}
{{- end -}}
{{- end -}}

{{/* What a pool's kind of object cannot do: (dict "root" $ "name" ... "pool" ...). */}}
{{- define "switchyard.checkKind" -}}
{{- $name := .name -}}
{{- $at := printf "pools.%s" $name -}}
{{- $pool := .pool -}}
{{- $kind := $pool.workloadKind -}}
{{- $group := $pool.group -}}
{{- if and (eq $kind "StatefulSet") (or (gt (int $group.size) 1) (gt (int $group.maxSurge) 0) $group.exclusiveTopology) -}}
  {{- include "switchyard.instead" (dict "why" (printf "%s.group: a StatefulSet has no groups of Pods." $at) "before" (printf "%s: {group: {size: %d}}" $name (int $group.size)) "after" (printf "%s: {workloadKind: LeaderWorkerSet, group: {size: %d}}" $name (int $group.size))) -}}
{{- end -}}
{{- if eq $kind "DisaggregatedSet" -}}
  {{- if $pool.autoscaling.enabled -}}
    {{- include "switchyard.instead" (dict "why" (printf "%s.autoscaling: a DisaggregatedSet has no scale that an autoscaler could set, and takes back what is set on its parts." $at) "before" (printf "%s: {workloadKind: DisaggregatedSet, autoscaling: {enabled: true}}" $name) "after" (printf "%s: {workloadKind: LeaderWorkerSet, autoscaling: {enabled: true}}" $name)) -}}
  {{- end -}}
  {{- if eq (int $pool.replicas) 0 -}}
    {{- include "switchyard.instead" (dict "why" (printf "%s.replicas: the pools of a DisaggregatedSet serve together, so none can be empty." $at) "before" (printf "%s: {workloadKind: DisaggregatedSet, replicas: 0}" $name) "after" (printf "%s: {workloadKind: DisaggregatedSet, replicas: 1}" $name)) -}}
  {{- end -}}
{{- end -}}
{{- include "switchyard.checkKindStays" . -}}
{{- end -}}

{{/* All Pods of the old object would end at once, those of StatefulSet and LeaderWorkerSet before new ones of the same
     names can start. Only a cluster can say what there is; `helm template` asks none. */}}
{{- define "switchyard.checkKindStays" -}}
{{- if .root.Release.IsUpgrade -}}
  {{- $was := include "switchyard.liveKind" . -}}
  {{- if and $was (ne $was .pool.workloadKind) -}}
    {{- include "switchyard.instead" (dict "why" (printf "pools.%s.workloadKind: the pool is a %s. Another kind needs a pool of another name: once that one serves, take this one out." .name $was) "before" (printf "pools: {%s: {workloadKind: %s}}" .name .pool.workloadKind) "after" (printf "pools: {%s: {workloadKind: %s}, %s-2: {workloadKind: %s}}" .name $was (trunc 13 .name | trimSuffix "-") .pool.workloadKind)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* A number for a quantity of bytes, as in 1.5Gi. */}}
{{- define "switchyard.bytes" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?(e[+-]?[0-9]+)?" $text -}}
{{- $unit := get (dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624) (trimPrefix $number $text) -}}
{{- mulf (float64 $number) (default 1 $unit) | int64 -}}
{{- end -}}

{{/* A claim keeps its class and does not shrink. Installs are checked, too: the claim outlives its release. */}}
{{- define "switchyard.checkClaimStays" -}}
{{- $persistence := .Values.coordinator.persistence -}}
{{- if and $persistence.enabled (not $persistence.existingClaim) -}}
  {{- $name := include "switchyard.coordinatorClaim" . -}}
  {{- $claim := include "switchyard.live" (dict "root" . "api" "v1" "kind" "PersistentVolumeClaim" "name" $name) | fromJson -}}
  {{- $other := printf "Or delete persistentvolumeclaim/%s, with all plans and keys." $name -}}
  {{- $class := dig "spec" "storageClassName" "" $claim -}}
  {{- $named := dig "metadata" "annotations" "switchyard.storage-class" "" $claim -}}
  {{- $unset := and $named (not $persistence.storageClass) -}}
  {{- if and $claim (or $unset (and $persistence.storageClass (ne $persistence.storageClass $class))) -}}
    {{- include "switchyard.instead" (dict "why" (printf "coordinator.persistence.storageClass: the claim is of the class %q, and a claim keeps its class. %s" $class $other) "before" (printf "persistence: {storageClass: %q}" $persistence.storageClass) "after" (printf "persistence: {storageClass: %q}" $class)) -}}
  {{- end -}}
  {{- $size := dig "spec" "resources" "requests" "storage" "0" $claim -}}
  {{- if lt (include "switchyard.bytes" $persistence.size | int64) (include "switchyard.bytes" $size | int64) -}}
    {{- include "switchyard.instead" (dict "why" (printf "coordinator.persistence.size: the claim has %s, and a claim does not shrink. %s" $size $other) "before" (printf "persistence: {size: %v}" $persistence.size) "after" (printf "persistence: {size: %s}" $size)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* nameOverride is in every selector, and selectors are immutable. Without fullnameOverride it renames all objects. */}}
{{- define "switchyard.checkSelectorStays" -}}
{{- if .Release.IsUpgrade -}}
  {{- $key := "app.kubernetes.io/name" -}}
  {{- $now := get (include "switchyard.selector" (dict "root" .) | fromYaml) $key -}}
  {{- $found := include "switchyard.live" (dict "root" . "api" "apps/v1" "kind" "StatefulSet" "name" (printf "%s-coordinator" (include "switchyard.fullname" .))) | fromJson -}}
  {{- $was := dig "spec" "selector" "matchLabels" $key $now $found -}}
  {{- if ne $was $now -}}
    {{- include "switchyard.instead" (dict "why" (printf "nameOverride: the release's objects select Pods by %s=%s, which cannot change." $key $was) "before" (printf "nameOverride: %q" .Values.nameOverride) "after" (printf "nameOverride: %q, or another fullnameOverride, which renames all objects" (ternary "" $was (eq $was .Chart.Name)))) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* A DisaggregatedSet has between two and ten roles. */}}
{{- define "switchyard.checkDisaggregated" -}}
{{- $names := include "switchyard.poolsOfKind" (dict "root" . "kind" "DisaggregatedSet") | fromJsonArray -}}
{{- if eq (len $names) 1 -}}
  {{- $name := first $names -}}
  {{- include "switchyard.instead" (dict "why" (printf "pools.%s.workloadKind: a DisaggregatedSet is of two pools or more, and this is the only one of that kind." $name) "before" (printf "pools: {%s: {workloadKind: DisaggregatedSet}}" $name) "after" (printf "pools: {%s: {workloadKind: LeaderWorkerSet}}, or pools: {prefill: {phase: prefill, workloadKind: DisaggregatedSet}, decode: {phase: decode, workloadKind: DisaggregatedSet}}" $name)) -}}
{{- end -}}
{{- if gt (len $names) 10 -}}
  {{- include "switchyard.instead" (dict "why" (printf "pools: a DisaggregatedSet has at most 10 pools, and these are %d." (len $names)) "before" "poolDefaults: {workloadKind: DisaggregatedSet}" "after" "poolDefaults: {workloadKind: LeaderWorkerSet}") -}}
{{- end -}}
{{- end -}}

{{- define "switchyard.checkModel" -}}
{{- $at := printf "models.%s" .name -}}
{{- $artifact := .model.artifact -}}
{{- $wants := get (dict "pvc" "claim" "hostPath" "hostPath" "image" "image" "imageVolume" "image") $artifact.source -}}
{{- range $key := list "claim" "hostPath" "image" -}}
  {{- if and (eq $key $wants) (not (get $artifact $key)) -}}
    {{- include "switchyard.instead" (dict "why" (printf "%s.artifact: source %s needs %s." $at $artifact.source $key) "before" (printf "artifact: {source: %s}" $artifact.source) "after" (printf "artifact: {source: %s, %s: ...}" $artifact.source $key)) -}}
  {{- else if and (ne $key $wants) (get $artifact $key) -}}
    {{- include "switchyard.instead" (dict "why" (printf "%s.artifact: %s does not belong to source %s." $at $key $artifact.source) "before" (printf "artifact: {source: %s, %s: %s}" $artifact.source $key (get $artifact $key)) "after" (printf "artifact: {source: %s, %s: ...}" $artifact.source $wants)) -}}
  {{- end -}}
{{- end -}}
{{- if and (eq $artifact.source "imageVolume") (semverCompare "<1.35.0-0" .root.Capabilities.KubeVersion.Version) -}}
  {{- include "switchyard.instead" (dict "why" (printf "%s.artifact: imageVolume needs Kubernetes 1.35; this is %s." $at .root.Capabilities.KubeVersion.Version) "before" "artifact: {source: imageVolume}" "after" "artifact: {source: image}") -}}
{{- end -}}
{{- end -}}

{{/* Names of pools and of callers become parts of names of objects, beside those of the chart itself. */}}
{{- define "switchyard.checkNames" -}}
{{- $own := list "apply" "authority" "certificates" "coordinator" "coordinator-pods" "dashboards" "identities" "models" "test" -}}
{{- $pools := include "switchyard.pools" . | fromJson -}}
{{- range $name, $_ := $pools -}}
  {{- if has $name $own -}}
    {{- include "switchyard.instead" (dict "why" (printf "pools.%s: the chart has other objects of that name." $name) "before" (printf "pools: {%s: {...}}" $name) "after" (printf "pools: {%s-pool: {...}}" (trunc 10 $name | trimSuffix "-"))) -}}
  {{- end -}}
{{- end -}}
{{- range $name, $roles := .Values.security.certificates.callers -}}
  {{- if and $roles (or (has $name $own) (hasKey $pools $name)) -}}
    {{- include "switchyard.instead" (dict "why" (printf "security.certificates.callers.%s: a pool or a part of the release has that name." $name) "before" (printf "callers: {%s: %s}" $name (toJson $roles)) "after" (printf "callers: {%s: null, %s-caller: %s}" $name (trunc 10 $name | trimSuffix "-") (toJson $roles))) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "switchyard.checkSecurity" -}}
{{- $certificates := .Values.security.certificates -}}
{{- if and (eq $certificates.source "certManager") (not $certificates.issuerRef.name) -}}
  {{- include "switchyard.instead" (dict "why" "security.certificates: cert-manager needs to know the issuer." "before" "certificates: {source: certManager}" "after" "certificates: {source: certManager, issuerRef: {name: NAME, kind: ClusterIssuer}}") -}}
{{- end -}}
{{- if and (ne $certificates.source "certManager") $certificates.issuerRef -}}
  {{- include "switchyard.instead" (dict "why" (printf "security.certificates.issuerRef: source %s asks no issuer." $certificates.source) "before" (printf "certificates: {source: %s, issuerRef: {...}}" $certificates.source) "after" "certificates: {source: certManager, issuerRef: {...}}") -}}
{{- end -}}
{{- if and (ne $certificates.source "job") $certificates.rotateAuthority -}}
  {{- include "switchyard.instead" (dict "why" (printf "security.certificates.rotateAuthority: source %s has no authority of the release; docs/SECURITY.md says how to replace yours." $certificates.source) "before" (printf "certificates: {source: %s, rotateAuthority: %q}" $certificates.source $certificates.rotateAuthority) "after" (printf "certificates: {source: %s}" $certificates.source)) -}}
{{- end -}}
{{- if and (eq $certificates.source "none") .Values.security.identities -}}
  {{- include "switchyard.instead" (dict "why" "security.identities: without certificates nobody has an id." "before" "security: {certificates: {source: none}, identities: [...]}" "after" "security: {certificates: {source: job}, identities: [...]}") -}}
{{- end -}}
{{- if hasKey .Values.security "tenants" -}}
  {{- include "switchyard.instead" (dict "why" "security.tenants: no such key. Helm keeps values in its release, where whoever reads it would read the names of tenants; they are in a Secret of yours." "before" "security: {tenants: [...]}" "after" "security: {tenantsSecret: NAME}") -}}
{{- end -}}
{{- if and (eq $certificates.source "none") .Values.security.tenantsSecret -}}
  {{- include "switchyard.instead" (dict "why" "security.tenantsSecret: without certificates nobody has an id, and so no tenant." "before" "security: {certificates: {source: none}, tenantsSecret: NAME}" "after" "security: {certificates: {source: job}, tenantsSecret: NAME}") -}}
{{- end -}}
{{- $domain := printf "spiffe://%s/" .Values.security.trustDomain -}}
{{- range .Values.security.identities -}}
  {{- if not (hasPrefix $domain .id) -}}
    {{- include "switchyard.instead" (dict "why" (printf "security.identities: %s is not of the trust domain %s. All ids of a release are of one, and programs refuse a table of two." .id $.Values.security.trustDomain) "before" (printf "identities: [{id: %q, roles: %s}]" .id (toJson .roles)) "after" (printf "identities: [{id: \"%sPATH\", roles: %s}]" $domain (toJson .roles))) -}}
  {{- end -}}
{{- end -}}
{{- $holders := include "switchyard.holders" . | fromJson -}}
{{- range $holder, $_ := $certificates.secrets -}}
  {{- if not (hasKey $holders $holder) -}}
    {{- include "switchyard.instead" (dict "why" (printf "security.certificates.secrets.%s: nobody has that name." $holder) "before" (printf "secrets: {%s: ...}" $holder) "after" (printf "secrets: {NAME: ...}, where NAME is one of %s" (keys $holders | sortAlpha | join ", "))) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* A Secret has one certificate, of one holder. */}}
{{- define "switchyard.checkSecrets" -}}
{{- $of := dict (printf "%s-authority" (include "switchyard.fullname" .)) "the authority" -}}
{{- if include "switchyard.secured" . -}}
  {{- range $holder, $_ := include "switchyard.holders" . | fromJson -}}
    {{- $secret := include "switchyard.secretOf" (dict "root" $ "holder" $holder) -}}
    {{- if hasKey $of $secret -}}
      {{- $named := ternary $holder (get $of $secret) (hasKey $.Values.security.certificates.secrets $holder) -}}
      {{- include "switchyard.instead" (dict "why" (printf "security.certificates.secrets: %s and %s would share the Secret %s, and each has a certificate of its own." (get $of $secret) $holder $secret) "before" (printf "secrets: {%s: %s}" $named $secret) "after" (printf "secrets: {%s: %s-%s}" $named $secret $named)) -}}
    {{- end -}}
    {{- $_ := set $of $secret $holder -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Both phases need workers, and a model that names pools needs pools that there are. */}}
{{- define "switchyard.checkPhases" -}}
{{- if include "switchyard.hasPhases" . -}}
  {{- range $phase := list "prefill" "decode" -}}
    {{- if not (include "switchyard.poolsOf" (dict "root" $ "phase" $phase) | fromJsonArray) -}}
      {{- include "switchyard.instead" (dict "why" (printf "pools: none serves %s, so models could not be used." $phase) "before" "pools: {a: {phase: ...}}" "after" (printf "pools: {a: {phase: ...}, %s: {phase: %s}}" $phase $phase)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $pools := include "switchyard.pools" . | fromJson -}}
{{- range $name, $model := include "switchyard.models" . | fromJson -}}
  {{- range $pool := (default (dict) $model.deployment).pools -}}
    {{- if not (hasKey $pools $pool) -}}
      {{- include "switchyard.instead" (dict "why" (printf "models.%s.deployment.pools: there is no pool %s." $name $pool) "before" (printf "pools: [%s]" $pool) "after" (printf "pools: [%s]" (keys $pools | sortAlpha | join ", "))) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "switchyard.check" -}}
{{- include "switchyard.checkKeys" . -}}
{{- include "switchyard.checkRelease" . -}}
{{- include "switchyard.checkCoordinator" . -}}
{{- include "switchyard.checkSelectorStays" . -}}
{{- include "switchyard.checkClaimStays" . -}}
{{- include "switchyard.checkPhases" . -}}
{{- include "switchyard.checkNames" . -}}
{{- include "switchyard.checkSecurity" . -}}
{{- include "switchyard.checkSecrets" . -}}
{{- include "switchyard.checkDisaggregated" . -}}
{{- range $name, $pool := include "switchyard.pools" . | fromJson -}}
  {{- $given := default (dict) (get $.Values.pools $name) -}}
  {{- include "switchyard.checkPool" (dict "name" $name "pool" $pool "replicas" (or (hasKey $given "replicas") (hasKey $.Values.poolDefaults "replicas"))) -}}
  {{- include "switchyard.checkKind" (dict "root" $ "name" $name "pool" $pool) -}}
{{- end -}}
{{- range $name, $model := include "switchyard.models" . | fromJson -}}
  {{- include "switchyard.checkModel" (dict "root" $ "name" $name "model" $model) -}}
{{- end -}}
{{- end -}}
