package stage

import (
	"testing"
	"time"
)

func TestParseUse(t *testing.T) {
	t.Parallel()
	status := "Name:\tspeaker\nVmHWM:\t    4096 kB\nVmRSS:\t    2048 kB\nRssAnon:\t    1024 kB\n"
	stat := "7 (a ) b) S 1 7 7 0 -1 4194304 1 2 3 4 50 60 70 80 20 0 9 0 123"
	got, err := parseUse(status, stat)
	if want := (Use{CPU: 2600 * time.Millisecond, Resident: 2, Anonymous: 1, Peak: 4}); err != nil || got != want {
		t.Errorf("parseUse gives %+v, %v, want %+v", got, err, want)
	}
	if _, err := parseUse("", "7 (x) S 1"); err == nil {
		t.Error("texts that are too short are no error")
	}
}

func TestLastService(t *testing.T) {
	t.Parallel()
	save := `*nat
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -d 10.96.1.3/32 -p tcp -m comment --comment "bench/b:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-B
-A KUBE-SERVICES -d 10.96.1.2/32 -p tcp -m comment --comment "bench/a:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-A
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "default/kubernetes:https cluster IP" -m tcp --dport 443 -j KUBE-SVC-K
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
`
	got, err := lastService(save, 80)
	if err != nil || got.String() != "10.96.1.2:80" {
		t.Errorf("lastService gives %s, %v", got, err)
	}
	if _, err := lastService("*nat\n", 80); err == nil {
		t.Error("a list without Services is no error")
	}
}
