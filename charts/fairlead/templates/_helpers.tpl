{{/* Labels of every object. Pods have fewer, so that a new chart version alone restarts none. */}}
{{- define "fairlead.labels" -}}
app.kubernetes.io/name: fairlead
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of pods besides those by which they are selected; arguments: root, extra. */}}
{{- define "fairlead.podLabels" -}}
{{- with omit (merge (deepCopy (.extra | default dict)) (.root.Values.commonLabels | default dict)) "app.kubernetes.io/name" "app.kubernetes.io/component" }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* Arguments after those of the chart. */}}
{{- define "fairlead.extraArgs" -}}
{{- range . }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "fairlead.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The affinity to nodes that can run the image. */}}
{{- define "fairlead.architectures" -}}
{{- with .Values.image.architectures }}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - key: kubernetes.io/arch
            operator: In
            values: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Annotations for Prometheus and those of the user; arguments: root, port, extra. */}}
{{- define "fairlead.podAnnotations" -}}
{{- $annotations := dict }}
{{- if and .root.Values.metrics.annotations .root.Values.metrics.enabled }}
{{- $annotations = dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString .port) "prometheus.io/path" "/metrics" }}
{{- if .root.Values.metrics.secure }}
{{- $_ := set $annotations "prometheus.io/scheme" "https" }}
{{- end }}
{{- end }}
{{- with merge (deepCopy (.extra | default dict)) $annotations }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* Where the program is, and where it reaches the API server; arguments: host, port. */}}
{{- define "fairlead.env" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- if .host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .port | quote }}
{{- end }}
# A connection on which an API server is silent for the first time, and answers no ping for the second, is given up, and another one
# is made: to the next of apiServer.servers, or wherever the address leads then.
- name: HTTP2_READ_IDLE_TIMEOUT_SECONDS
  value: "2"
- name: HTTP2_PING_TIMEOUT_SECONDS
  value: "2"
{{- end }}

{{/* Arguments for no metrics or for metrics over TLS, then where they are mounted, and from where. */}}
{{- define "fairlead.metricsArgs" -}}
{{- if not .Values.metrics.enabled }}
- --metrics-off
{{- end }}
{{- if .Values.metrics.secure }}
- --metrics-secure
{{- if .Values.metrics.certificateSecret }}
- --metrics-certificate-dir=/run/metrics-certificate
{{- end }}
{{- end }}
{{- end }}

{{- define "fairlead.metricsMount" -}}
{{- if and .Values.metrics.secure .Values.metrics.certificateSecret }}
- name: metrics-certificate
  mountPath: /run/metrics-certificate
  readOnly: true
{{- end }}
{{- end }}

{{- define "fairlead.metricsVolume" -}}
{{- if and .Values.metrics.secure .Values.metrics.certificateSecret }}
# Optional, since no pod is to wait for it.
- name: metrics-certificate
  secret:
    secretName: {{ .Values.metrics.certificateSecret }}
    optional: true
{{- end }}
{{- end }}

{{- define "fairlead.nodeName" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end }}

{{/* The limit of a container's memory, with its resources, in bytes: see internal/memlimit. */}}
{{- define "fairlead.memoryLimit" -}}
{{- if ((. | default dict).limits).memory }}
- name: MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      resource: limits.memory
{{- end }}
{{- end }}

{{/* What the chart has, own, with each field of the user's, more, in place of its. */}}
{{- define "fairlead.overridden" -}}
{{- range $field, $value := .more }}
{{- $_ := set $.own $field $value }}
{{- end }}
{{- toYaml .own }}
{{- end }}

{{/* The securityContext of a container, in which fields of the user's are in place of the chart's; arguments: capabilities, a list, and more, the user's. */}}
{{- define "fairlead.security" -}}
{{- $own := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
{{- with .capabilities }}
{{- $_ := set $own.capabilities "add" . }}
{{- end }}
{{- include "fairlead.overridden" (dict "own" $own "more" .more) }}
{{- end }}

{{/* The securityContext of a pod, in which fields of the user's are in place of the chart's; arguments: user, the number of user and group, selinux, whether it
has the type that may do its work, and more, the user's. */}}
{{- define "fairlead.podSecurity" -}}
{{- $own := dict "runAsUser" .user "runAsGroup" .user "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- if .user }}
{{- $_ := set $own "runAsNonRoot" true }}
{{- end }}
{{- if .selinux }}
{{- $_ := set $own "seLinuxOptions" (dict "type" "spc_t") }}
{{- end }}
{{- include "fairlead.overridden" (dict "own" $own "more" .more) }}
{{- end }}

{{/* Something, if NodePorts are to answer on loopback addresses. */}}
{{- define "fairlead.localhostNodePorts" -}}
{{- range .Values.forwarding.nodePortAddresses }}
{{- if or (eq . "localhost") (hasPrefix "127." .) }}asked{{ end }}
{{- end }}
{{- end }}

{{/* Something, if the connection table is to have anything that the kernel may not have. */}}
{{- define "fairlead.conntrack" -}}
{{- if ne .Values.forwarding.mode "none" }}
{{- with .Values.forwarding.conntrack }}
{{- if or .maxPerCore .tcpBeLiberal (ne .tcpEstablishedTimeout "0s") (ne .tcpCloseWaitTimeout "0s") (ne .udpTimeout "0s") (ne .udpStreamTimeout "0s") -}}
asked
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the pods of the controller have, and that of its uninstall. */}}
{{- define "fairlead.controllerPod" -}}
serviceAccountName: fairlead-controller
priorityClassName: {{ .Values.controller.priorityClassName | default "system-cluster-critical" }}
# The name of the API server is all that it looks up, and that must not take cluster DNS,
# which itself needs the API server and a speaker.
dnsPolicy: {{ .Values.controller.dnsPolicy | default "Default" }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  {{- include "fairlead.podSecurity" (dict "user" 65532 "more" .Values.controller.podSecurityContext) | nindent 2 }}
{{- with .Values.controller.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.controller.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
