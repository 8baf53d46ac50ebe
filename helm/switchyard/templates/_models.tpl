{{/* The Job that applies the models. */}}

{{/* What `syctl apply` gets. */}}
{{- define "switchyard.modelsFile" -}}
{{- $documents := list -}}
{{- range include "switchyard.deployments" . | fromJsonArray -}}
{{- $documents = append $documents (toYaml .) -}}
{{- end -}}
{{- join "\n---\n" $documents -}}
{{- end -}}

{{/* How long reading all checkpoints and loading them may take. */}}
{{- define "switchyard.applySeconds" -}}
{{- $seconds := int .Values.apply.marginSeconds -}}
{{- range $name, $model := include "switchyard.models" . | fromJson -}}
{{- $seconds = add $seconds (ceil (divf $model.sizeGiB $.Values.apply.minLoadGiBPerSecond)) | int -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}

{{/* A Job's Pods are immutable, so another spec needs another name. So do other models, and lost plans of the coordinator.
     Applying the same file again changes nothing. */}}
{{- define "switchyard.applyName" -}}
{{- $all := list (include "switchyard.applySpec" .) (include "switchyard.modelsFile" .) (include "switchyard.plans" .) -}}
{{- include "switchyard.fullname" . }}-apply-{{ join "\n" $all | sha256sum | trunc 8 -}}
{{- end -}}

{{- define "switchyard.applySpec" -}}
{{- $full := include "switchyard.fullname" . -}}
{{- $seconds := include "switchyard.applySeconds" . | int -}}
backoffLimit: 10
# A Pod waits and then applies, for at most so long each, so it ends before this deadline would delete it.
activeDeadlineSeconds: {{ add 60 (mul 2 $seconds) }}
template:
  metadata:
    labels: {{- include "switchyard.selector" (dict "root" . "component" "apply") | nindent 6 }}
  spec:
    serviceAccountName: {{ $full }}-apply
    automountServiceAccountToken: false
    enableServiceLinks: false
    # Each attempt is a new Pod, so the log of a failed one stays.
    restartPolicy: Never
    securityContext: {{- include "switchyard.podSecurity" . | nindent 6 }}
    {{- include "switchyard.pull" . | nindent 4 }}
    {{- include "switchyard.scheduling" (dict "root" . "pod" .Values.coordinator) | nindent 4 }}
    containers:
    - name: apply
      image: {{ include "switchyard.image" (dict "root" . "name" "tools") | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [/usr/bin/sh, -c]
      args:
      - |
        {{- .Files.Get "files/apply.sh" | nindent 8 }}
      env:
      - {name: APPLY_SECONDS, value: {{ $seconds | quote }}}
      - {name: SYCTL_TARGET, value: {{ include "switchyard.target" . | quote }}}
      {{- with include "switchyard.tlsEnv" . }}
      {{- . | nindent 6 }}
      {{- end }}
      securityContext: {{- include "switchyard.containerSecurity" . | nindent 8 }}
      resources: {{- toYaml .Values.apply.resources | nindent 8 }}
      volumeMounts:
      - {name: models, mountPath: /etc/switchyard, readOnly: true}
      {{- with include "switchyard.tlsMount" . }}
      {{- . | nindent 6 }}
      {{- end }}
    volumes:
    - name: models
      configMap: {name: {{ $full }}-models}
    {{- with include "switchyard.tlsVolume" (dict "root" . "holder" "apply") }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end -}}
