# Runs flanneld, and gives containerd the network once flanneld has said how large packets may be, as flannel's
# own CNI plugin waits for.
rm -f /etc/cni/net.d/10-lab.conflist
mkdir -p /etc/cni/net.d
while :; do
	flanneld --ip-masq --kube-subnet-mgr --kubeconfig-file=/etc/kubernetes/{{.PodNetworkUser}}.conf
	sleep 1
done &
until grep -qs FLANNEL_IPMASQ /run/flannel/subnet.env; do sleep 0.1; done
. /run/flannel/subnet.env
sed "s/@MTU@/$FLANNEL_MTU/" /etc/kube-flannel/cni.conflist >/etc/cni/net.d/10-lab.conflist # containerd overlooks what is moved there
wait
