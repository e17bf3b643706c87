package charts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// schema is the part of JSON schema that values.schema.json uses.
type schema struct {
	Ref                  string             `json:"$ref"`
	AllOf                []*schema          `json:"allOf"`
	AnyOf                []*schema          `json:"anyOf"`
	Type                 string             `json:"type"`
	Description          string             `json:"description"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties json.RawMessage    `json:"additionalProperties"`
	Items                *schema            `json:"items"`
	Definitions          map[string]*schema `json:"definitions"`
}

func readSchema(t *testing.T) *schema {
	t.Helper()
	content, err := os.ReadFile(chart + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root schema
	if err := json.Unmarshal(content, &root); err != nil {
		t.Fatal(err)
	}
	return &root
}

// resolve follows references; the description beside one is kept.
func (s *schema) resolve(t *testing.T, root *schema) *schema {
	t.Helper()
	ref := s.Ref
	if len(s.AllOf) == 1 {
		ref = s.AllOf[0].Ref
	}
	if ref == "" {
		return s
	}
	definition, ok := root.Definitions[strings.TrimPrefix(ref, "#/definitions/")]
	if !ok {
		t.Fatalf("$ref %q leads nowhere", ref)
	}
	resolved := *definition
	if s.Description != "" {
		resolved.Description = s.Description
	}
	return &resolved
}

// openEnded are the objects whose keys the chart does not know, and whose.
var openEnded = map[string]string{
	".global":                                        "Helm's: what an umbrella chart shares with all its charts",
	".controller.affinity.nodeAffinity":              "the API server's",
	".controller.affinity.podAffinity":               "the API server's",
	".controller.affinity.podAntiAffinity":           "the API server's",
	".controller.topologySpreadConstraints[]":        "the API server's",
	".controller.extraEnv[].valueFrom":               "the API server's",
	".speaker.extraEnv[].valueFrom":                  "the API server's",
	".speaker.pulse.extraEnv[].valueFrom":            "the API server's",
	".speaker.affinity.nodeAffinity":                 "the API server's",
	".speaker.affinity.podAffinity":                  "the API server's",
	".speaker.affinity.podAntiAffinity":              "the API server's",
	".speaker.podSecurityContext":                    "the API server's",
	".speaker.securityContext":                       "the API server's",
	".speaker.pulse.securityContext":                 "the API server's",
	".controller.podSecurityContext":                 "the API server's",
	".controller.securityContext":                    "the API server's",
	".extraObjects[]":                                "the user's",
	".networkPolicy.metricsFrom[].namespaceSelector": "the API server's",
	".networkPolicy.metricsFrom[].podSelector":       "the API server's",
	".networkPolicy.metricsFrom[].ipBlock":           "the API server's",
}

func TestSchemaDescribesEveryKeyAndKnowsNoOther(t *testing.T) {
	t.Parallel()
	root := readSchema(t)
	content, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var defaults map[string]any
	if err := yaml.UnmarshalStrict(content, &defaults); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, s *schema, value any)
	walk = func(path string, s *schema, value any) {
		s = s.resolve(t, root)
		if s.Description == "" {
			t.Errorf("%s has no description", path)
		}
		if s.Items != nil {
			walk(path+"[]", s.Items, nil)
		}
		if s.Type != "object" {
			return
		}
		isMap := strings.HasPrefix(string(s.AdditionalProperties), "{")
		if _, open := openEnded[path]; !open && !isMap && string(s.AdditionalProperties) != "false" {
			t.Errorf("%s accepts unknown keys", path)
		}
		fields, _ := value.(map[string]any)
		for key, property := range s.Properties {
			walk(path+"."+key, property, fields[key])
		}
		for key := range fields {
			if _, known := s.Properties[key]; !known && !isMap {
				t.Errorf("%s.%s is in values.yaml only", path, key)
			}
		}
		if path == "" || len(fields) > 0 && !strings.HasSuffix(path, ".resources") {
			for key := range s.Properties {
				if _, set := fields[key]; !set && key != "global" && key != "enabled" && !isMap {
					t.Errorf("%s.%s has no default in values.yaml", path, key)
				}
			}
		}
	}
	walk("", root, defaults)
}

func TestBadValuesAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		values values
		says   []string
	}{
		"unknown key":          {values{"forwardng": values{}}, []string{"forwardng"}},
		"unknown nested key":   {values{"speaker": values{"hello": values{"prot": 1}}}, []string{"/speaker/hello", "prot"}},
		"unknown resource key": {values{"controller": values{"resources": values{"limit": values{}}}}, []string{"/controller/resources", "limit"}},
		"mode":                 {values{"forwarding": values{"mode": "ipvs"}}, []string{"/forwarding/mode", "iptables", "nftables", "none"}},
		"prefix without length": {
			values{"forwarding": values{"clusterCIDRs": []string{"10.244.0.0"}}},
			[]string{"/forwarding/clusterCIDRs/0", "10.244.0.0"},
		},
		"prefixes in one string": {
			values{"forwarding": values{"clusterCIDRs": "10.244.0.0/16,fd00::/48"}},
			[]string{"/forwarding/clusterCIDRs", "array"},
		},
		"prefixes where interfaces tell": {
			values{"forwarding": values{"detectLocalMode": "BridgeInterface", "podBridgeInterface": "cbr0", "clusterCIDRs": []string{"10.0.0.0/8"}}},
			[]string{"/forwarding/clusterCIDRs"},
		},
		"no bridge":             {values{"forwarding": values{"detectLocalMode": "BridgeInterface"}}, []string{"/forwarding/podBridgeInterface"}},
		"bridge without mode":   {values{"forwarding": values{"podBridgeInterface": "cbr0"}}, []string{"/forwarding/podBridgeInterface"}},
		"no prefix of names":    {values{"forwarding": values{"detectLocalMode": "InterfaceNamePrefix"}}, []string{"/forwarding/podInterfaceNamePrefix"}},
		"star in a name":        {values{"forwarding": values{"detectLocalMode": "InterfaceNamePrefix", "podInterfaceNamePrefix": "veth*"}}, []string{"/forwarding/podInterfaceNamePrefix", "veth*"}},
		"mode of local traffic": {values{"forwarding": values{"detectLocalMode": "Bridge"}}, []string{"/forwarding/detectLocalMode", "BridgeInterface"}},
		"neither word nor prefix": {
			values{"forwarding": values{"nodePortAddresses": []string{"primary", "loopback"}}},
			[]string{"/forwarding/nodePortAddresses/1", "loopback"},
		},
		"no word for external addresses": {values{"forwarding": values{"externalIPs": "Some"}}, []string{"/forwarding/externalIPs"}},
		"words among external addresses": {values{"forwarding": values{"externalIPs": []string{"Pools", "192.0.2.0/24"}}}, []string{"/forwarding/externalIPs"}},
		"no external addresses listed":   {values{"forwarding": values{"externalIPs": []string{}}}, []string{"/forwarding/externalIPs"}},
		"timeout without unit":           {values{"forwarding": values{"conntrack": values{"udpTimeout": "30"}}}, []string{"/forwarding/conntrack/udpTimeout"}},
		"timeout as a number":            {values{"forwarding": values{"conntrack": values{"udpTimeout": 0}}}, []string{"/forwarding/conntrack/udpTimeout"}},
		"timeout in parts":               {values{"forwarding": values{"conntrack": values{"tcpCloseWaitTimeout": "1500ms"}}}, []string{"/forwarding/conntrack/tcpCloseWaitTimeout"}},
		"room below none":                {values{"forwarding": values{"conntrack": values{"maxPerCore": -1}}}, []string{"/forwarding/conntrack/maxPerCore"}},
		"prefix too long":                {values{"forwarding": values{"clusterCIDRs": []string{"10.0.0.0/33"}}}, []string{"10.0.0.0/33"}},
		"prefix of no address":           {values{"forwarding": values{"clusterCIDRs": []string{"10.256.0.0/16"}}}, []string{"10.256.0.0/16"}},
		"zeros that lead":                {values{"forwarding": values{"nodePortAddresses": []string{"192.0.02.0/24"}}}, []string{"192.0.02.0/24"}},
		"no address to listen":           {values{"speaker": values{"proxyHealth": values{"address": "192.0.2.300"}}}, []string{"/speaker/proxyHealth/address"}},
		"host with a port":               {values{"apiServer": values{"host": "192.0.2.10:6443"}}, []string{"/apiServer/host"}},
		"host with brackets":             {values{"apiServer": values{"host": "[fd00::1]"}}, []string{"/apiServer/host"}},
		"host with a scheme":             {values{"apiServer": values{"host": "https://192.0.2.10"}}, []string{"/apiServer/host"}},
		"port of API server":             {values{"apiServer": values{"port": 0}}, []string{"/apiServer/port"}},
		"port as a string":               {values{"speaker": values{"metricsPort": "7474"}}, []string{"/speaker/metricsPort"}},
		"port out of range":              {values{"speaker": values{"hello": values{"port": 65536}}}, []string{"/speaker/hello/port"}},
		"status without a port":          {values{"speaker": values{"proxyStatus": values{"address": "127.0.0.1"}}}, []string{"/speaker/proxyStatus/address"}},
		"secure metrics beside plain ones": {
			values{"metrics": values{"secure": true}, "speaker": values{"proxyStatus": values{"address": "0.0.0.0:10249"}}},
			[]string{"speaker.proxyStatus.address is 0.0.0.0:10249", "leave it at 127.0.0.1:10249"},
		},
		"a PodMonitor without metrics": {values{"metrics": values{"enabled": false, "podMonitor": values{"enabled": true}}}, []string{"metrics.podMonitor.enabled is true and metrics.enabled is false"}},
		"alerts without metrics":       {values{"metrics": values{"enabled": false, "prometheusRule": values{"enabled": true}}}, []string{"metrics.prometheusRule.enabled is true and metrics.enabled is false"}},
		"a certificate without TLS":    {values{"metrics": values{"certificateSecret": "c"}}, []string{"metrics.certificateSecret is c and metrics.secure is false"}},
		"secure as a word":             {values{"metrics": values{"secure": "yes"}}, []string{"/metrics/secure"}},
		"status by name":               {values{"speaker": values{"proxyStatus": values{"address": "localhost:10249"}}}, []string{"/speaker/proxyStatus/address"}},
		"negative port":                {values{"speaker": values{"proxyHealth": values{"port": -1}}}, []string{"/speaker/proxyHealth/port"}},
		"name to listen":               {values{"speaker": values{"proxyHealth": values{"address": "localhost"}}}, []string{"/speaker/proxyHealth/address"}},
		"interval without unit":        {values{"speaker": values{"hello": values{"interval": "100"}}}, []string{"/speaker/hello/interval"}},
		"interval too short":           {values{"speaker": values{"hello": values{"interval": "9.5ms"}}}, []string{"/speaker/hello/interval"}},
		"seconds too short":            {values{"speaker": values{"hello": values{"interval": "0.005s"}}}, []string{"/speaker/hello/interval"}},
		"zero interval":                {values{"speaker": values{"hello": values{"interval": "0s"}}}, []string{"/speaker/hello/interval"}},
		"multiplier of one":            {values{"speaker": values{"hello": values{"multiplier": 1}}}, []string{"/speaker/hello/multiplier"}},
		"damping without unit":         {values{"speaker": values{"hello": values{"damping": "180"}}}, []string{"/speaker/hello/damping"}},
		"multiplier of two":            {values{"speaker": values{"hello": values{"multiplier": 2}}}, []string{"/speaker/hello/multiplier"}},
		"no replicas":                  {values{"controller": values{"replicas": 0}}, []string{"/controller/replicas"}},
		"log level":                    {values{"logLevel": "trace"}, []string{"/logLevel", "debug"}},
		"class":                        {values{"loadBalancerClass": "a b"}, []string{"/loadBalancerClass"}},
		"pull policy":                  {values{"image": values{"pullPolicy": "Sometimes"}}, []string{"/image/pullPolicy"}},
		"repository with a tag and digest": {
			values{"image": values{"repository": "a/b@sha256:00"}}, []string{"/image/repository"},
		},
		"repository with a tag": {values{"image": values{"repository": "registry.example:5000/fairlead:dev"}}, []string{"/image/repository", "fairlead:dev"}},
		"toleration": {
			values{"speaker": values{"tolerations": []any{values{"operator": "Is"}}}},
			[]string{"/speaker/tolerations/0/operator"},
		},
		"maxUnavailable": {
			values{"speaker": values{"updateStrategy": values{"maxUnavailable": 0}}},
			[]string{"/speaker/updateStrategy/maxUnavailable"},
		},
	}
	for version, program := range helms(t) {
		for name, tt := range tests {
			t.Run(version+"/"+name, func(t *testing.T) {
				t.Parallel()
				_, err := helm(t, program, tt.values, "template", "fairlead", chart, "--namespace", namespace)
				if err == nil {
					t.Fatal("rendered, want it refused")
				}
				for _, want := range tt.says {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the message does not say %q:\n%v", want, err)
					}
				}
			})
		}
	}
}

func TestGoodValuesAreAccepted(t *testing.T) {
	t.Parallel()
	tests := map[string]values{
		"hosts by IPv4":       {"apiServer": values{"host": "192.0.2.10"}},
		"hosts by IPv6":       {"apiServer": values{"host": "2001:db8::10"}},
		"hosts by name":       {"apiServer": values{"host": "api.cluster.example"}},
		"registry with port":  {"image": values{"repository": "registry.example:5000/team/fairlead"}},
		"registry by address": {"image": values{"repository": "192.0.2.20:5000/team/fairlead_dev"}},
		"fractional interval": {"speaker": values{"hello": values{"interval": "0.5s"}}},
		"shortest interval":   {"speaker": values{"hello": values{"interval": "10ms"}}},
		"shortest in seconds": {"speaker": values{"hello": values{"interval": "0.01s"}}},
		"percentage":          {"speaker": values{"updateStrategy": values{"maxUnavailable": "10%"}}},
		"part of a chart":     {"global": values{"anything": true}},
		"words for NodePorts": {"forwarding": values{"nodePortAddresses": []string{"primary", "localhost", "192.0.2.0/24", "fd00::/64"}}},
		"pods by a bridge":    {"forwarding": values{"detectLocalMode": "BridgeInterface", "podBridgeInterface": "cbr0"}},
		"pods by names":       {"forwarding": values{"detectLocalMode": "InterfaceNamePrefix", "podInterfaceNamePrefix": "cali"}},
		"pods by podCIDRs":    {"forwarding": values{"detectLocalMode": "NodeCIDR", "masqueradeAll": true}},
		"connection table":    {"forwarding": values{"conntrack": values{"maxPerCore": 65536, "min": 1000000, "tcpEstablishedTimeout": "1h30m", "udpTimeout": "45s", "tcpBeLiberal": true}}},
		"host routes":         {"forwarding": values{"clusterCIDRs": []string{"10.0.0.1/32", "::/0", "fd00::1/128"}}},
	}
	for version, program := range helms(t) {
		for name, v := range tests {
			t.Run(version+"/"+name, func(t *testing.T) {
				t.Parallel()
				decode(t, render(t, program, v))
			})
		}
	}
}

// TestPartOfAChart: another chart turns this one on and off by the usual condition.
func TestPartOfAChart(t *testing.T) {
	t.Parallel()
	umbrella := t.TempDir()
	const about = "{apiVersion: v2, name: umbrella, version: 0.1.0, dependencies: [{name: fairlead, version: 0.1.0, condition: fairlead.enabled}]}"
	if err := os.WriteFile(filepath.Join(umbrella, "Chart.yaml"), []byte(about), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(umbrella, "charts", "fairlead"), os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	for version, program := range helms(t) {
		for _, enabled := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/enabled=%t", version, enabled), func(t *testing.T) {
				t.Parallel()
				rendered, err := helm(t, program, values{"fairlead": values{"enabled": enabled}}, "template", "umbrella", umbrella, "--namespace", namespace)
				if err != nil {
					t.Fatal(err)
				}
				if n := len(decode(t, rendered)); n > 0 != enabled {
					t.Errorf("%d objects are rendered", n)
				}
			})
		}
	}
}

func TestOpenEndedObjectsExist(t *testing.T) {
	t.Parallel()
	root := readSchema(t)
	for path := range openEnded {
		s := root
		for key := range strings.SplitSeq(strings.TrimPrefix(path, "."), ".") {
			key, isList := strings.CutSuffix(key, "[]")
			next, ok := s.Properties[key]
			if !ok {
				t.Fatalf("%s is not in the schema", path)
			}
			if s = next.resolve(t, root); isList {
				s = s.Items.resolve(t, root)
			}
		}
		if string(s.AdditionalProperties) == "false" {
			t.Errorf("%s is closed: take it off the list", path)
		}
	}
}

// helm upgrade --reuse-values keeps the values of the last release and leaves out what the
// new chart has besides, and null in a file of the user takes a default away. What the pods
// cannot do without is asked for, and what they can changes nothing.
func TestAMissingValueIsAskedForOrNotMissed(t *testing.T) {
	t.Parallel()
	program := helms(t)["helm4"]
	content, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var defaults map[string]any
	if err := yaml.UnmarshalStrict(content, &defaults); err != nil {
		t.Fatal(err)
	}
	whole := render(t, program, nil)
	var try func(keys []string, value any)
	try = func(keys []string, value any) {
		if len(keys) > 0 {
			var without any
			for _, key := range slices.Backward(keys) {
				without = values{key: without}
			}
			last := keys[len(keys)-1]
			switch out, err := helm(t, program, without.(values), "template", "fairlead", chart, "--namespace", namespace); {
			case err != nil && !strings.Contains(err.Error(), fmt.Sprintf("missing property '%s'", last)):
				t.Errorf("without %v: %v", keys, err)
			case err == nil && isScalar(value) && out != whole:
				t.Errorf("without %v, which the schema does not ask for, the chart is another", keys)
			case err == nil:
				decode(t, out)
			}
		}
		object, _ := value.(map[string]any)
		if len(keys) > 0 && slices.Contains([]string{"resources", "nodeSelector"}, keys[len(keys)-1]) {
			return // whose keys are Kubernetes' and the user's
		}
		for key, value := range object {
			try(append(slices.Clone(keys), key), value)
		}
	}
	try(nil, defaults)
}

// isScalar tells whether a value is neither a list nor an object.
func isScalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}
