# The first process of a node, in mount, PID, UTS and IPC namespaces of its own
# and in the node's network namespace and cgroups: makes the node's root file
# system and becomes what reaps orphans. Arguments: the node's name and
# directory, the root file system, the programs.
set -euo pipefail
name=$1 dir=$2 rootfs=$3 bin=$4

# Enters a cgroup namespace whose root is the cgroup the node was put in.
if [ -z "${IN_CGROUP_NAMESPACE:-}" ]; then
	IN_CGROUP_NAMESPACE=1 exec unshare --cgroup bash -c "$BASH_EXECUTION_STRING" boot "$@"
fi

mount --make-rprivate /
hostname "$name"

# A disk that outlives a power cycle: upper and var. All else is made anew.
mkdir -p "$dir"/{root,upper,work} "$dir"/var/{lib/kubelet,lib/containerd,lib/cni,log/pods,log/containers,tmp,cache}
ln -sfn /run "$dir/var/run"
mount -t overlay -o "lowerdir=$rootfs,upperdir=$dir/upper,workdir=$dir/work" overlay "$dir/root"
cd "$dir/root"
mkdir -p proc sys dev run var opt/cni/bin usr/local/bin old
mount --rbind /dev dev
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount --bind "$dir/var" var
mount --bind "$bin" usr/local/bin
mount --bind "$bin/cni" opt/cni/bin

# The node's own part of each cgroup hierarchy of this machine.
hierarchies=$(awk '$5 ~ "^/sys/fs/cgroup/[^/]+$" && / - cgroup / {n = split($NF, o, ","); print substr($5, 16), o[n]}' /proc/self/mountinfo)
if [ -n "$hierarchies" ]; then # version 1
	mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
	while read -r controller options; do
		mkdir "sys/fs/cgroup/$controller"
		case $options in name=*) options=none,$options ;; *) options=$controller ;; esac
		mount -t cgroup -o "$options" cgroup "sys/fs/cgroup/$controller"
	done <<<"$hierarchies"
else # version 2: controllers go to the children only once no process is here
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mkdir -p sys/fs/cgroup/init
	echo 0 >sys/fs/cgroup/init/cgroup.procs
	for controller in $(<sys/fs/cgroup/cgroup.controllers); do
		echo "+$controller" >sys/fs/cgroup/cgroup.subtree_control
	done
fi

# The kubelet finds these set as it wants them, so that it does not set them on
# the whole machine. Each start of a node is a boot of its own.
mkdir run/sysctl
set_for_node() { # KEY VALUE
	local file=run/sysctl/${1//\//.}
	echo "$2" >"$file"
	mount --bind "$file" "proc/sys/$1"
}
set_for_node vm/overcommit_memory 1
set_for_node vm/panic_on_oom 0
set_for_node kernel/panic 10
set_for_node kernel/panic_on_oops 1
set_for_node kernel/keys/root_maxkeys 1000000
set_for_node kernel/keys/root_maxbytes 25000000
set_for_node kernel/random/boot_id "$(</proc/sys/kernel/random/uuid)"

pivot_root . old
umount -l old
mount --make-rshared /
cd /
exec /usr/local/bin/pause
