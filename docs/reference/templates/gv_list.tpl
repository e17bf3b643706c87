{{- define "gvList" -}}
# API reference

Made by `make generate` from the types in `api/v1beta1`. `kubectl explain ipaddresspool.spec` says the same.
{{ range . }}
{{ template "gvDetails" . }}
{{- end }}
{{- end -}}
