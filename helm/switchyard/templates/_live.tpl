{{/* What the cluster has. `helm template` has no cluster and finds nothing. */}}

{{/* An object as JSON, {} if there is none: (dict "root" $ "api" "apps/v1" "kind" "StatefulSet" "name" "a"). */}}
{{- define "switchyard.live" -}}
{{- $found := dict -}}
{{- if .root.Capabilities.APIVersions.Has .api -}}
  {{- $found = lookup .api .kind .root.Release.Namespace .name -}}
{{- end -}}
{{- default (dict) $found | toJson -}}
{{- end -}}

{{/* What makes the Pods of a pool now; empty if nothing does: (dict "root" $ "name" <the pool's>). */}}
{{- define "switchyard.liveKind" -}}
{{- $root := .root -}}
{{- $name := .name -}}
{{- $object := printf "%s-%s" (include "switchyard.fullname" $root) $name -}}
{{- $was := "" -}}
{{- $found := include "switchyard.live" (dict "root" $root "api" "apps/v1" "kind" "StatefulSet" "name" $object) | fromJson -}}
{{- if and $found (not (dig "metadata" "ownerReferences" list $found)) -}}{{- $was = "StatefulSet" -}}{{- end -}}
{{- if include "switchyard.live" (dict "root" $root "api" "leaderworkerset.x-k8s.io/v1" "kind" "LeaderWorkerSet" "name" $object) | fromJson -}}
  {{- $was = "LeaderWorkerSet" -}}
{{- end -}}
{{- $both := include "switchyard.live" (dict "root" $root "api" "disaggregatedset.x-k8s.io/v1" "kind" "DisaggregatedSet" "name" (include "switchyard.disaggregatedName" $root)) | fromJson -}}
{{- range dig "spec" "roles" list $both -}}
  {{- if eq .name $name -}}{{- $was = "DisaggregatedSet" -}}{{- end -}}
{{- end -}}
{{- $was -}}
{{- end -}}

{{/* `replicas` of a pool's workload: (dict "root" $ "name" <the pool's> "pool" $pool). With an autoscaler, an upgrade repeats
     the live number: Kubernetes sets 1 when the field disappears. An autoscaler never leaves 0 by itself. */}}
{{- define "switchyard.replicas" -}}
{{- if not .pool.autoscaling.enabled -}}
replicas: {{ .pool.replicas }}
{{- else if .root.Release.IsUpgrade -}}
  {{- $kind := .pool.workloadKind -}}
  {{- $api := ternary "apps/v1" "leaderworkerset.x-k8s.io/v1" (eq $kind "StatefulSet") -}}
  {{- $object := printf "%s-%s" (include "switchyard.fullname" .root) .name -}}
  {{- with include "switchyard.live" (dict "root" .root "api" $api "kind" $kind "name" $object) | fromJson -}}
replicas: {{ default $.pool.autoscaling.minReplicas (dig "spec" "replicas" 0 .) }}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Names of the pools that this upgrade removes, as a JSON list. Their workers still need their role to move their experts
     away. The next upgrade finds no workload of the pool and drops the name. */}}
{{- define "switchyard.leaving" -}}
{{- $leaving := list -}}
{{- if .Release.IsUpgrade -}}
  {{- $holders := include "switchyard.holders" . | fromJson -}}
  {{- $prefix := include "switchyard.id" (dict "root" . "holder" "") -}}
  {{- $live := include "switchyard.live" (dict "root" . "api" "v1" "kind" "ConfigMap" "name" (printf "%s-identities" (include "switchyard.fullname" .))) | fromJson -}}
  {{- $table := dig "data" "identities.yaml" "" $live | fromYaml -}}
  {{- range default list $table.identities -}}
    {{- $name := trimPrefix $prefix .id -}}
    {{- if and (hasPrefix $prefix .id) (eq (toJson .roles) "[\"worker\"]") (not (hasKey $holders $name)) -}}
      {{- if include "switchyard.liveKind" (dict "root" $ "name" $name) -}}{{- $leaving = append $leaving $name -}}{{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toJson $leaving -}}
{{- end -}}
