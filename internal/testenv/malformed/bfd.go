package malformed

import "slices"

// bfdProfiles are the cases of BFDProfile.
func bfdProfiles() []Case {
	return append(cases("BFDProfile", slices.Concat([]spec{
		{"the least", "{}", ""},
		{"all fields", "{receiveInterval: 10, transmitInterval: 60000, detectMultiplier: 255, echoMode: false, echoInterval: 50, passiveMode: true, minimumTtl: 254}", ""},
		{"echo", "{echoMode: true}", "spec.echoMode: Invalid value: true: the echo function is not supported"},
	}, limits("receiveInterval", 10, 60000), limits("transmitInterval", 10, 60000), limits("echoInterval", 10, 60000),
		limits("detectMultiplier", 2, 255), limits("minimumTtl", 1, 254))), conditions("BFDProfile", []told{
		{"echoInterval", "{echoInterval: 50}", "spec.echoInterval", "FieldUnused", "spec.echoInterval: has no effect, as the echo function is not supported"},
	})...)
}
