{{- define "punctual.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "punctual.labels" -}}
app.kubernetes.io/name: punctual
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "punctual.database" -}}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef: {name: {{ .Values.secret.name }}, key: {{ .Values.secret.databaseURL }}}
{{- end }}

{{- define "punctual.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "punctual.security" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}
