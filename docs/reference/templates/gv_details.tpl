{{- define "gvDetails" -}}
{{- $gv := . -}}
All kinds are of `{{ $gv.GroupVersionString }}`:
{{- range $i, $kind := $gv.SortedKinds }}{{ if $i }},{{ end }} {{ $gv.TypeForKind $kind | markdownRenderTypeLink }}{{ end }}.
{{ range $gv.SortedTypes }}{{ if .GVK }}
## {{ .Name }}
{{ template "type" . }}
{{- end }}{{ end }}
## Parts of these
{{ range $gv.SortedTypes }}{{ if not .GVK }}{{ if markdownShouldRenderType . }}
### {{ .Name }}
{{ template "type" . }}
{{- end }}{{ end }}{{ end }}
{{- end -}}
