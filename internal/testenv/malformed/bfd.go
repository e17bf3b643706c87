package malformed

// bfdProfiles are the cases of BFDProfile.
func bfdProfiles() []Case {
	return append(cases("BFDProfile", []spec{
		{"the least", "{}", ""},
		{"all fields", "{receiveInterval: 10, transmitInterval: 60000, detectMultiplier: 255, echoMode: false, echoInterval: 50, passiveMode: true, minimumTtl: 254}", ""},
		{"echo", "{echoMode: true}", "spec.echoMode: Invalid value: true: the echo function is not supported"},
		{"too often", "{receiveInterval: 9}", "spec.receiveInterval: Invalid value: 9: spec.receiveInterval in body should be greater than or equal to 10"},
		{"too rarely", "{transmitInterval: 60001}", "spec.transmitInterval: Invalid value: 60001: spec.transmitInterval in body should be less than or equal to 60000"},
		{"no loss at all", "{detectMultiplier: 1}", "spec.detectMultiplier: Invalid value: 1: spec.detectMultiplier in body should be greater than or equal to 2"},
		{"no hop at all", "{minimumTtl: 255}", "spec.minimumTtl: Invalid value: 255: spec.minimumTtl in body should be less than or equal to 254"},
		{"echoes too often", "{echoInterval: 9}", "spec.echoInterval: Invalid value: 9: spec.echoInterval in body should be greater than or equal to 10"},
	}), conditions("BFDProfile", []told{
		{"echoInterval", "{echoInterval: 50}", "spec.echoInterval", "FieldUnused", "spec.echoInterval: has no effect, as the echo function is not supported"},
	})...)
}
