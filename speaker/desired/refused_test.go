package desired_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

func TestRefusedFindsEveryPort(t *testing.T) {
	key := func(name string) desired.PortKey {
		return desired.PortKey{Service: view.Ref{Namespace: "shop", Name: name}}
	}
	refusal := func(name string, why ...error) error {
		return &desired.RefusedError{Key: key(name), Err: errors.Join(append(why, errors.New("no"))...)}
	}
	for _, err := range []error{nil, errors.New("the lock"), errors.Join(errors.New("a"), errors.New("b"))} {
		if got := desired.Refused(err); len(got) != 0 {
			t.Errorf("%v: refused %v", err, got)
		}
	}
	err := fmt.Errorf("apply: %w", errors.Join(
		errors.New("the lock"),
		fmt.Errorf("IPv4: %w", errors.Join(refusal("a"), errors.Join(refusal("b", errors.New("why")), nil))),
		fmt.Errorf("IPv6: %w", refusal("c")),
	))
	want := map[desired.PortKey]bool{key("a"): true, key("b"): true, key("c"): true}
	if got := desired.Refused(err); !maps.Equal(got, want) {
		t.Errorf("refused %v, want %v", got, want)
	}
}
