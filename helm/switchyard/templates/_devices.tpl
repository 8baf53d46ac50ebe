{{/* What a pool's device needs: the image of this project that has it, the resource of each rank, the
     taint that its nodes usually have, and the program's argument. */}}
{{- define "switchyard.preset" -}}
{{- if eq . "nvidia" -}}
{image: worker-cuda, argument: cuda, resource: nvidia.com/gpu, taint: nvidia.com/gpu}
{{- else if eq . "ascend910" -}}
{image: "", argument: "", resource: huawei.com/Ascend910, taint: huawei.com/Ascend910}
{{- else if eq . "ascend-1980" -}}
{image: "", argument: "", resource: huawei.com/ascend-1980, taint: huawei.com/ascend-1980}
{{- else -}}
{image: worker, argument: cpu, resource: "", taint: ""}
{{- end -}}
{{- end -}}

{{/* The resources of a rank, as JSON: the pool's and one device of the preset. A pool that limits resources of the same vendor
     (0, or a part such as nvidia.com/mig-1g.10gb) or claims devices gets no other: (dict "pool" $pool "resource"
     "nvidia.com/gpu"). */}}
{{- define "switchyard.presetResources" -}}
{{- $resources := deepCopy .pool.resources -}}
{{- if .resource -}}
  {{- $vendor := printf "%s/" (splitList "/" .resource | first) -}}
  {{- $own := not (empty .pool.resourceClaims) -}}
  {{- range $name, $_ := default (dict) $resources.limits -}}
    {{- if hasPrefix $vendor $name -}}{{- $own = true -}}{{- end -}}
  {{- end -}}
  {{- if not $own -}}
    {{- $_ := set $resources "limits" (merge (dict .resource 1) (default (dict) $resources.limits)) -}}
  {{- end -}}
{{- end -}}
{{- toJson $resources -}}
{{- end -}}
