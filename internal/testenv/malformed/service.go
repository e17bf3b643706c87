package malformed

import (
	"slices"
	"strings"

	"fairlead.dev/fairlead/api/v1beta1"
)

// services are the cases of Services: their annotations, and spec.loadBalancerIP.
func services() []Case {
	const spec = "{type: LoadBalancer, ports: [{port: 80}]"
	var all []Case
	add := func(field, value, reason, message string) {
		c := Case{
			Kind: "Service", Name: field + " " + value, Spec: spec + "}", Annotations: "{" + field + ": '" + value + "'}",
			Field: "metadata.annotations[" + field + "]", Reason: reason, Message: message,
		}
		if field == "spec.loadBalancerIP" {
			c.Spec, c.Annotations, c.Field = spec+", loadBalancerIP: '"+value+"'}", "{}", field
		}
		all = append(all, c)
	}
	addresses, pools := []string{v1beta1.AnnotationAddresses}, []string{v1beta1.AnnotationPool}
	for _, prefix := range v1beta1.MetalLBPrefixes() {
		addresses, pools = append(addresses, prefix+v1beta1.MetalLBAddresses), append(pools, prefix+v1beta1.MetalLBPool)
	}
	where := func(field string) string {
		if strings.Contains(field, "/") {
			return "annotation " + field + ": "
		}
		return field + ": "
	}
	for _, field := range slices.Concat(addresses, []string{"spec.loadBalancerIP"}) {
		for value, meant := range map[string]string{
			"nonsense": "nonsense", "203.0.113.0/24": "203.0.113.0/24", "203.0.113.1-203.0.113.2": "203.0.113.1-203.0.113.2",
			"203.0.113.7,": "", "203.0.113.256": "203.0.113.256", "::ffff:203.0.113.7": "::ffff:203.0.113.7", "fe80::1%eth0": "fe80::1%eth0",
		} {
			add(field, value, "InvalidRequest", where(field)+`"`+meant+`" is not an IP address`)
		}
		for value, reason := range map[string]string{
			"198.51.100.1": "RequestOutsidePools", "127.0.0.1": "RequestOutsidePools", "224.0.0.1": "RequestOutsidePools",
			"255.255.255.255": "RequestOutsidePools", "2001:db8::1": "RequestFamily", "10.96.0.77": "RequestUnusable", "192.0.2.211": "RequestUnusable", "203.0.113.211": "RequestUnusable",
		} {
			add(field, value, reason, value)
		}
	}
	for _, field := range pools {
		add(field, "a,,b", "InvalidRequest", where(field)+`"a,,b" has an empty name`)
		add(field, "missing", "PoolNotFound", `"missing"`)
	}
	add(v1beta1.AnnotationReservation, "a,,b", "InvalidRequest", where(v1beta1.AnnotationReservation)+`"a,,b" has an empty name`)
	add(v1beta1.AnnotationReservation, "missing", "ReservationNotFound", `"missing"`)
	add(v1beta1.AnnotationShareWith, "a,,b", "InvalidRequest", where(v1beta1.AnnotationShareWith)+`"a,,b" has an empty name`)
	return append(all, Case{
		Kind: "Service", Name: "two that differ", Spec: spec + "}",
		Annotations: "{fairlead.dev/addresses: 203.0.113.9, metallb.io/loadBalancerIPs: 203.0.113.8}",
		Reason:      "RequestConflict", Message: "annotation metallb.io/loadBalancerIPs says \"203.0.113.8\"",
	})
}
