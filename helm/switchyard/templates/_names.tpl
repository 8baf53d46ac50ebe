{{/* Names and labels. */}}

{{/* At most 32 characters, so that names of Pods' revisions stay within 63. */}}
{{- define "switchyard.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
  {{- $chart := default .Chart.Name .Values.nameOverride -}}
  {{- $name = ternary .Release.Name (printf "%s-%s" .Release.Name $chart) (contains $chart .Release.Name) -}}
{{- end -}}
{{- if gt (len $name) 32 -}}
  {{- $name = printf "%s-%s" (trunc 23 $name | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- $name | trimSuffix "-" -}}
{{- end -}}

{{- define "switchyard.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . | quote }}
{{- end }}
{{- with .pool }}
switchyard.pool: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Of objects; Pods have the selector's labels only, so that a new chart alone rolls no Pod. */}}
{{- define "switchyard.labels" -}}
{{ include "switchyard.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: switchyard
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "switchyard.coordinatorHost" -}}
{{ include "switchyard.fullname" . }}-coordinator.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "switchyard.target" -}}
{{ include "switchyard.coordinatorHost" . }}:{{ .Values.coordinator.port }}
{{- end -}}

{{/* What an image inherits from a less specific one, as JSON. A tag or digest belongs to one repository and build: an image
     that sets a repository, tag or digest inherits neither. (dict "of" <the less specific> "own" <its values>). */}}
{{- define "switchyard.inherited" -}}
{{- $of := default (dict) .of -}}
{{- $own := default (dict) .own -}}
{{- if or $own.repository $own.tag $own.digest -}}{{- $of = pick $of "repository" -}}{{- end -}}
{{- toJson $of -}}
{{- end -}}

{{/* The reference of an image: (dict "root" $ "name" "worker" "own" <pool's image>). */}}
{{- define "switchyard.image" -}}
{{- $others := include "switchyard.inherited" (dict "of" (get .root.Values.images .name) "own" .own) | fromJson -}}
{{- $image := merge (dict) (default (dict) .own) $others -}}
{{- $repository := default (printf "%s/%s" .root.Values.image.prefix .name) $image.repository -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* A map over another one, as JSON. Unlike mergeOverwrite it takes false, 0 and "" as values. */}}
{{- define "switchyard.over" -}}
{{- $out := deepCopy .base -}}
{{- range $key, $value := .over -}}
  {{- if and (kindIs "map" $value) (kindIs "map" (get $out $key)) -}}
    {{- $value = include "switchyard.over" (dict "base" (get $out $key) "over" $value) | fromJson -}}
  {{- end -}}
  {{- $_ := set $out $key $value -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* The pools with all their keys, as JSON. */}}
{{- define "switchyard.pools" -}}
{{- $pools := dict -}}
{{- $given := .Values.pools -}}
{{- if not $given -}}{{- $given = dict "workers" (dict) -}}{{- end -}}
{{- range $name, $pool := $given -}}
  {{- $pool = default (dict) $pool -}}
  {{- $image := include "switchyard.inherited" (dict "of" $.Values.poolDefaults.image "own" $pool.image) | fromJson -}}
  {{- $base := merge (dict "image" $image) (omit $.Values.poolDefaults "image") -}}
  {{- $whole := include "switchyard.over" (dict "base" $base "over" $pool) | fromJson -}}
  {{- if not (hasKey $whole "replicas") -}}{{- $_ := set $whole "replicas" 2 -}}{{- end -}}
  {{- $_ := set $pools $name $whole -}}
{{- end -}}
{{- toJson $pools -}}
{{- end -}}

{{/* The models with all their keys, as JSON: the demo's if none is given. */}}
{{- define "switchyard.models" -}}
{{- $models := deepCopy .Values.models -}}
{{- if and (not $models) .Values.demo -}}
  {{- $artifact := dict "source" "image" "path" "" "image" (include "switchyard.image" (dict "root" . "name" "model-sqlite-moe-7m")) -}}
  {{- $models = dict "demo" (dict "sizeGiB" 1 "golden" "golden.safetensors" "artifact" $artifact "deployment" (dict "model" "sqlite-moe-7m")) -}}
{{- end -}}
{{- toJson $models -}}
{{- end -}}

{{/* Workers that a start or an install brings: Pods times ranks, of the pools that a list names or of all:
     (dict "root" $ "of" (list "a")). */}}
{{- define "switchyard.workersOf" -}}
{{- $count := 0 -}}
{{- $of := .of -}}
{{- range $name, $pool := include "switchyard.pools" .root | fromJson -}}
  {{- if or (not $of) (has $name $of) -}}
  {{- $count = add $count (mul (include "switchyard.podsOf" $pool | int) $pool.ranksPerPod) -}}
  {{- end -}}
{{- end -}}
{{- $count -}}
{{- end -}}

{{- define "switchyard.workers" -}}
{{- include "switchyard.workersOf" (dict "root" . "of" list) -}}
{{- end -}}

{{/* Names of the pools that serve a phase, as a JSON list: (dict "root" $ "phase" "decode"). */}}
{{- define "switchyard.poolsOf" -}}
{{- $names := list -}}
{{- $phase := .phase -}}
{{- range $name, $pool := include "switchyard.pools" .root | fromJson -}}
  {{- if or (eq $pool.phase $phase) (eq $pool.phase "mixed") -}}{{- $names = append $names $name -}}{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* True in text if a pool serves one phase only. */}}
{{- define "switchyard.hasPhases" -}}
{{- range $name, $pool := include "switchyard.pools" . | fromJson -}}
  {{- if ne $pool.phase "mixed" -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The deployments of all models, as a JSON list of what `syctl apply` gets. Where pools serve one phase only, a
     model has a deployment for each phase, unless it names pools or phases itself. */}}
{{- define "switchyard.deployments" -}}
{{- $out := list -}}
{{- $split := include "switchyard.hasPhases" . -}}
{{- range $name, $model := include "switchyard.models" . | fromJson -}}
  {{- $given := default (dict) $model.deployment -}}
  {{- $own := dict "checkpoint" (include "switchyard.checkpoint" (dict "name" $name "model" $model)) -}}
  {{- $parts := list (dict "name" $name) -}}
  {{- if and $split (not $given.pools) (not $given.phases) -}}
    {{- $parts = list -}}
    {{- range $phase := list "prefill" "decode" -}}
      {{- $pools := include "switchyard.poolsOf" (dict "root" $ "phase" $phase) | fromJsonArray -}}
      {{- $parts = append $parts (dict "name" (printf "%s-%s" $name $phase) "model" (default $name $given.model) "pools" $pools "phases" (list (dict "phase" $phase))) -}}
    {{- end -}}
  {{- end -}}
  {{- range $part := $parts -}}
    {{- $pools := default (default list $given.pools) $part.pools -}}
    {{- $base := dict "min_workers" (include "switchyard.workersOf" (dict "root" $ "of" $pools) | int) -}}
    {{- $whole := include "switchyard.over" (dict "base" (include "switchyard.over" (dict "base" $base "over" $given) | fromJson) "over" (merge (dict) $part $own)) | fromJson -}}
    {{- $out = append $out $whole -}}
  {{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}
