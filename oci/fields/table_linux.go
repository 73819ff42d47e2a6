package fields

var linuxTable = map[string]Entry{
	"Linux.uidMappings": host("of the program that serves the container's files; the ids in the guest are the container's"),
	"Linux.gidMappings": host("as uidMappings"),
	"Linux.sysctl": guest("namespaced ones, and sizes among the VM's vm.*, fs.* and kernel.*; docs/security.md lists them. Others are " +
		"refused"),
	"Linux.resources":         guest("limits apply in the guest; CPU and memory also size the VM and its cgroup on the host"),
	"Linux.cgroupsPath":       host("of the VM's processes on the host"),
	"Linux.namespaces":        guest(),
	"Linux.devices":           guest(),
	"Linux.netDevices":        host("moved into the container's network namespace; the VM gets a card for each"),
	"Linux.seccomp":           guest(),
	"Linux.rootfsPropagation": guest("mounts never reach the host; slave receives mounts from it"),
	"Linux.maskedPaths":       guest(),
	"Linux.readonlyPaths":     guest(),
	"Linux.mountLabel":        ignored(noLabels),
	"Linux.intelRdt":          ignored(hostsOwn),
	"Linux.memoryPolicy":      ignored(hostsOwn),
	"Linux.personality":       guest(),
	"Linux.timeOffsets":       refused("a VM has one clock"),

	"LinuxIDMapping.containerID": host(),
	"LinuxIDMapping.hostID":      host(),
	"LinuxIDMapping.size":        host(),

	"LinuxNamespace.type": guest("mount and cgroup: always new in the guest. network: the door makes or adopts it; without one, the " +
		"VM uses the host's network. pid, ipc and uts: the VM's, or new ones in the guest for a further container of a pod. user: for the " +
		"program that serves the files. time: refused"),
	"LinuxNamespace.path": host("a network, ipc or pid namespace of a container in a VM selects that VM. Other network and user namespaces " +
		"are adopted. Others are refused"),

	"LinuxDevice.path": guest("in /dev"),
	"LinuxDevice.type": guest("c, b, u or p. A block device becomes a disk of the VM"),
	"LinuxDevice.major": guest("null, zero, full, random, urandom, tty, console, ptmx, pts, kmsg, fuse, net/tun, and kvm if the VM has it. " +
		"Others are refused; if a rule allows all devices, they are ignored, and the container gets all devices of its VM"),
	"LinuxDevice.minor":    guest(),
	"LinuxDevice.fileMode": guest(),
	"LinuxDevice.uid":      guest(),
	"LinuxDevice.gid":      guest(),

	"LinuxNetDevice.name": host(),

	"LinuxSeccomp.defaultAction":    guest("SCMP_ACT_NOTIFY is refused"),
	"LinuxSeccomp.defaultErrnoRet":  guest(),
	"LinuxSeccomp.architectures":    guest(),
	"LinuxSeccomp.flags":            guest("SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV is ignored, because there is no listener"),
	"LinuxSeccomp.listenerPath":     refused("a listener on the host cannot serve the guest's kernel"),
	"LinuxSeccomp.listenerMetadata": refused("a listener on the host cannot serve the guest's kernel"),
	"LinuxSeccomp.syscalls":         guest(),
	"LinuxSyscall.names":            guest("unknown names are ignored, as in other runtimes"),
	"LinuxSyscall.action":           guest("SCMP_ACT_NOTIFY is refused"),
	"LinuxSyscall.errnoRet":         guest(),
	"LinuxSyscall.args":             guest(),
	"LinuxSeccompArg.index":         guest(),
	"LinuxSeccompArg.value":         guest(),
	"LinuxSeccompArg.valueTwo":      guest(),
	"LinuxSeccompArg.op":            guest(),

	"LinuxPersonality.domain": guest("LINUX or LINUX32"),
	"LinuxPersonality.flags":  refused("the specification defines none"),
}

var resourcesTable = map[string]Entry{
	"LinuxResources.devices":        guest("rules for devices that the guest does not have are ignored"),
	"LinuxResources.memory":         guest(),
	"LinuxResources.cpu":            guest(),
	"LinuxResources.pids":           guest(),
	"LinuxResources.blockIO":        ignored("it limits disks of the host"),
	"LinuxResources.hugepageLimits": guest("reserved in the VM"),
	"LinuxResources.network":        ignored(cgroupOne),
	"LinuxResources.rdma":           ignored("the VM has no RDMA devices"),
	"LinuxResources.unified":        guest("of the guest's cgroup"),

	"LinuxDeviceCgroup.allow":  guest(),
	"LinuxDeviceCgroup.type":   guest(),
	"LinuxDeviceCgroup.major":  guest(),
	"LinuxDeviceCgroup.minor":  guest(),
	"LinuxDeviceCgroup.access": guest(),

	"LinuxMemory.limit":             guest("0 means no limit"),
	"LinuxMemory.reservation":       guest(),
	"LinuxMemory.swap":              ignored(noSwap + "; less than the limit is refused"),
	"LinuxMemory.kernel":            ignored(cgroupOne),
	"LinuxMemory.kernelTCP":         ignored(cgroupOne),
	"LinuxMemory.swappiness":        ignored(noSwap),
	"LinuxMemory.disableOOMKiller":  ignored(cgroupOne),
	"LinuxMemory.useHierarchy":      ignored(cgroupOne),
	"LinuxMemory.checkBeforeUpdate": ignored("the guest's kernel reclaims memory, or ends a process"),

	"LinuxCPU.shares":          guest("without a quota, 1024 are one CPU of the VM"),
	"LinuxCPU.quota":           guest("0 means no limit"),
	"LinuxCPU.burst":           guest(),
	"LinuxCPU.period":          guest(),
	"LinuxCPU.realtimeRuntime": ignored(cgroupOne),
	"LinuxCPU.realtimePeriod":  ignored(cgroupOne),
	"LinuxCPU.cpus":            host("CPUs of the host, for the VM's processes"),
	"LinuxCPU.mems":            host("memory nodes of the host, for the VM's processes"),
	"LinuxCPU.idle":            guest(),

	"LinuxPids.limit": guest("0 means no limit"),

	"LinuxHugepageLimit.pageSize": guest(),
	"LinuxHugepageLimit.limit":    guest(),
}
