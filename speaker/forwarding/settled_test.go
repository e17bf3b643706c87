package forwarding

import (
	"errors"
	"testing"
	"testing/synctest"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// TestSettledIsToldInSpiteOfWhatNeverComes has a node lack what it will never have, for as long as it runs, or
// what does not concern the rules: the memory of the start is given back nevertheless, and once.
func TestSettledIsToldInSpiteOfWhatNeverComes(t *testing.T) {
	six := portKey("web")
	six.Family = addr.IPv6
	absent := &outcome.FamilyError{Family: addr.IPv6, Err: outcome.Caused(outcome.ReasonFamilyAbsent, errors.New("booted with ipv6.disable=1"))}
	for name, test := range map[string]struct {
		missing outcome.Missing
		err     error
		setting localnet
		want    int
	}{
		"all is there":                   {want: 1},
		"a host without IPv6":            {missing: outcome.Missing{six: {}}, err: absent, want: 1},
		"a port that the kernel refuses": {missing: outcome.Missing{six: {}}, err: &outcome.FamilyError{Family: addr.IPv6, Settled: true, Err: &outcome.RefusedError{Key: six, Err: errors.New("no")}}, want: 1},
		"a setting that cannot be made":  {setting: localnet(t.TempDir()), want: 1},
		"rules that are not written yet": {missing: outcome.Missing{six: {}}, err: &outcome.FamilyError{Family: addr.IPv6, Err: errors.New("the lock")}},
		"a port that is not written yet": {missing: outcome.Missing{six: {}}, err: &outcome.FamilyError{Family: addr.IPv6, Settled: true, Err: errors.New("the lock")}},
	} {
		synctest.Test(t, func(t *testing.T) {
			told := 0
			f := assembled(t, &scripted{missing: test.missing, err: test.err}, noFlows)
			f.settled = func() { told++ }
			if test.setting != "" {
				f.localnet = &routeLocalnet{setting: test.setting}
			}
			for range 2 {
				_, err := f.Apply(t.Context(), desired.Forwarding{})
				if unset := outcome.AllOf[*outcome.SettingError](err); (len(unset) > 0) != (test.setting != "") {
					t.Errorf("%s: error %v", name, err)
				}
				synctest.Wait()
			}
			if told != test.want {
				t.Errorf("%s: told %d times, want %d", name, told, test.want)
			}
		})
	}
}
