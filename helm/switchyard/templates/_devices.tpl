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
