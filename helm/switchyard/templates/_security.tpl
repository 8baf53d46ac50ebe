{{/* Certificates: who has which name and roles, and where programs find them. */}}

{{/* True in text if programs speak mutual TLS. */}}
{{- define "switchyard.secured" -}}
{{- if ne .Values.security.certificates.source "none" -}}true{{- end -}}
{{- end -}}

{{/* The roles of everybody who has a certificate of this release, by what comes after the release's name in
     ids and Secrets, as JSON. */}}
{{- define "switchyard.holders" -}}
{{- $holders := dict "coordinator" (list "coordinator") "apply" (list "operator") "test" (list "source" "observer") -}}
{{- range $name, $_ := include "switchyard.pools" . | fromJson -}}
  {{- $_ := set $holders $name (list "worker") -}}
{{- end -}}
{{- range $name, $roles := .Values.security.certificates.callers -}}
  {{- if $roles -}}{{- $_ := set $holders $name $roles -}}{{- end -}}
{{- end -}}
{{- toJson $holders -}}
{{- end -}}

{{/* The first caller with a role, for the notes; empty if none has it: (dict "root" $ "role" "operator"). */}}
{{- define "switchyard.callerWith" -}}
{{- $role := .role -}}
{{- $found := list -}}
{{- range $name, $roles := .root.Values.security.certificates.callers -}}
  {{- if has $role (default list $roles) -}}{{- $found = append $found $name -}}{{- end -}}
{{- end -}}
{{- if $found -}}{{- first $found -}}{{- end -}}
{{- end -}}

{{/* What all SPIFFE ids of the release begin with; a holder's name follows. */}}
{{- define "switchyard.idPrefix" -}}
ns/{{ .Release.Namespace }}/sa/{{ include "switchyard.fullname" . }}-
{{- end -}}

{{- define "switchyard.id" -}}
spiffe://{{ .root.Values.security.trustDomain }}/{{ include "switchyard.idPrefix" .root }}{{ .holder }}
{{- end -}}

{{/* The Secret of a holder: (dict "root" $ "holder" "apply"). */}}
{{- define "switchyard.secretOf" -}}
{{- $own := get .root.Values.security.certificates.secrets .holder -}}
{{- default (printf "%s-%s-tls" (include "switchyard.fullname" .root) .holder) $own -}}
{{- end -}}

{{/* The section security of a program's file, as JSON; empty without certificates. */}}
{{- define "switchyard.securityFile" -}}
{{- $file := dict -}}
{{- if include "switchyard.secured" . -}}
  {{- $_ := set $file "tls_dir" "/etc/switchyard-tls" -}}
  {{- if .Values.security.tenantsSecret -}}{{- $_ := set $file "tenants" "/etc/switchyard-tls/tenants.yaml" -}}{{- end -}}
{{- end -}}
{{- toJson $file -}}
{{- end -}}

{{/* The volume that --tls-dir names, and its mount; nothing without certificates. Renewed files appear in it
     within about a minute: it is mounted whole, since a subPath would stay as it was. With `tenants` it has the
     file of tenants, too, which only the processes that go by it get. */}}
{{- define "switchyard.tlsVolume" -}}
{{- if include "switchyard.secured" .root }}
- name: tls
  projected:
    defaultMode: 0440
    sources:
    - secret:
        name: {{ include "switchyard.secretOf" . | quote }}
        items:
        - {key: ca.crt, path: ca.crt}
        - {key: tls.crt, path: tls.crt}
        - {key: tls.key, path: tls.key}
    - configMap: {name: {{ include "switchyard.fullname" .root }}-identities}
    {{- if and .tenants .root.Values.security.tenantsSecret }}
    - secret:
        name: {{ .root.Values.security.tenantsSecret | quote }}
        items: [{key: tenants.yaml, path: tenants.yaml}]
    {{- end }}
{{- end }}
{{- end -}}

{{- define "switchyard.tlsMount" -}}
{{- if include "switchyard.secured" . }}
- {name: tls, mountPath: /etc/switchyard-tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "switchyard.tlsEnv" -}}
{{- if include "switchyard.secured" . }}
- {name: SYCTL_TLS_DIR, value: /etc/switchyard-tls}
{{- end }}
{{- end -}}
