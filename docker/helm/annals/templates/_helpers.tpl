{{- define "annals.labels" -}}
app.kubernetes.io/name: annals
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "annals.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What is the same in every pod. */}}
{{- define "annals.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - {name: tmp, emptyDir: {}}
  - {name: home, emptyDir: {}}
  {{- if .Values.files }}
  - {name: files, configMap: {name: {{ .Values.files }}}}
  {{- end }}
  {{- if .Values.secret.files }}
  - {name: secret-files, secret: {secretName: {{ .Values.secret.files }}, defaultMode: 0440}}
  {{- end }}
{{- end }}

{{/* What is the same in every container. */}}
{{- define "annals.container" -}}
image: {{ include "annals.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "annals.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /var/lib/annals}
{{- if .Values.files }}
- {name: files, mountPath: /etc/annals, readOnly: true}
{{- end }}
{{- if .Values.secret.files }}
- {name: secret-files, mountPath: /run/secrets/annals, readOnly: true}
{{- end }}
{{- end }}

{{/* Settings of every process. Called with a dict: root, and url, the key of its database URL. */}}
{{- define "annals.configuration.env" -}}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .root.Values.secret.name }}, key: {{ .url }}}}
- name: KAFKA_BOOTSTRAP_SERVERS
  value: {{ required "kafka.bootstrapServers is required" .root.Values.kafka.bootstrapServers | quote }}
{{- range $name, $value := .root.Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "annals.secretKey" -}}
- name: ANNALS_SECRET_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.secret.name }}, key: secret-key}}
{{- end }}
