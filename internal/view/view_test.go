package view_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/view"
)

func TestClasses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		classes         view.Classes
		none, our, rest bool
	}{
		{view.Classes{}, true, false, false},
		{view.Classes{Unclassed: true}, true, false, false},
		{view.Classes{Name: "fairlead.dev/lb"}, false, true, false},
		{view.Classes{Name: "fairlead.dev/lb", Unclassed: true}, true, true, false},
	} {
		none, our, rest := test.classes.Serves(""), test.classes.Serves("fairlead.dev/lb"), test.classes.Serves("example.com/other")
		if none != test.none || our != test.our || rest != test.rest {
			t.Errorf("%+v serves none: %t, ours: %t, another: %t", test.classes, none, our, rest)
		}
	}
}
