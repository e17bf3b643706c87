package stage

import "testing"

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
