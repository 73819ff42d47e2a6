package fields

import "maps"

const (
	noLinux    = "for another operating system"
	noLabels   = "the guest's kernel has no such policy; the VM isolates the container"
	hostsOwn   = "a property of the host's hardware"
	cgroupOne  = "version 1 of cgroups only; the guest has version 2"
	noSwap     = "the guest has no swap"
	noHostPath = "no path or argument from a specification reaches the hypervisor"
	noPass     = "the VM gets no hardware of the host"
	hookNote   = "run on the host in the client's namespaces, with the state on stdin"
)

// table has an entry for every field, by the names of its type and of the field in JSON. Fields inside a field that is
// ignored or refused need no entry.
var table = merged(topTable, processTable, linuxTable, resourcesTable)

func merged(all ...map[string]Entry) map[string]Entry {
	out := map[string]Entry{}
	for _, one := range all {
		maps.Copy(out, one)
	}
	return out
}

var topTable = map[string]Entry{
	"Spec.ociVersion": host("any 1.x; others are refused"),
	"Spec.process":    guest("required"),
	"Spec.root":       guest("required"),
	"Spec.hostname":   guest("a pod's first container names the VM; a later one needs a UTS namespace of its own"),
	"Spec.domainname": guest("as hostname; the sysctl kernel.domainname means the same"),
	"Spec.mounts":     guest("in their order"),
	"Spec.hooks":      host(),
	"Spec.annotations": host("kept for the state. Annotations of Bulkhead, Kata Containers and the CRI select sizes and roles. " +
		"The guest gets none"),
	"Spec.linux":   guest(),
	"Spec.solaris": refused(noLinux),
	"Spec.windows": refused(noLinux),
	"Spec.vm":      host(),
	"Spec.zos":     refused(noLinux),
	"Spec.freebsd": refused(noLinux),

	"Root.path":     host("shared with the guest while it runs; a relative path starts at the bundle"),
	"Root.readonly": guest("on the host too"),

	"Mount.destination": guest("a relative path starts at the root; / is refused"),
	"Mount.type": guest("bind mounts share a file or directory of the host. The guest mounts proc, sysfs, tmpfs, ramfs, devpts, mqueue, " +
		"cgroup, cgroup2, bpf, debugfs, tracefs, securityfs, fusectl, hugetlbfs and binfmt_misc itself. The door mounts overlay. " +
		"Others are refused"),
	"Mount.source": host("of a bind mount; a relative path starts at the bundle. Sockets and pipes are refused. Known devices, /dev/shm, " +
		"/proc, /sys and the cgroups are the guest's own"),
	"Mount.options": guest("flags are set in the guest and on the host. slave receives mounts from the host; shared acts as slave. " +
		"Options of the file system, such as sync, are ignored for bind mounts. Unknown ones are refused"),
	"Mount.uidMappings": host("an idmapped mount"),
	"Mount.gidMappings": host("an idmapped mount"),

	"Hooks.prestart":        host(hookNote),
	"Hooks.createRuntime":   host(hookNote),
	"Hooks.createContainer": host("run on the host in the namespaces of the container's process there"),
	"Hooks.startContainer":  host("run by the guest in the container"),
	"Hooks.poststart":       host(hookNote),
	"Hooks.poststop":        host(hookNote),
	"Hook.path":             host("must be absolute"),
	"Hook.args":             host(),
	"Hook.env":              host(),
	"Hook.timeout":          host("must be more than 0"),

	"VM.hypervisor":       refused(noHostPath),
	"VM.kernel":           host(),
	"VM.image":            host(),
	"VM.hwconfig":         host(),
	"VMKernel.path":       host("only a file that the administrator has allowed"),
	"VMKernel.parameters": refused(noHostPath),
	"VMKernel.initrd":     host("only a file that the administrator has allowed"),
	"VMImage.path":        host("only a file that the administrator has allowed"),
	"VMImage.format":      host("only raw"),
	"HWConfig.deviceTree": refused(noHostPath),
	"HWConfig.vcpus":      host("the VM's size"),
	"HWConfig.memory":     host("the VM's size"),
	"HWConfig.dtdevs":     refused(noPass),
	"HWConfig.iomems":     refused(noPass),
	"HWConfig.irqs":       refused(noPass),
}

var processTable = map[string]Entry{
	"Process.terminal":        guest(),
	"Process.consoleSize":     guest(),
	"Process.user":            guest(),
	"Process.args":            guest("required"),
	"Process.commandLine":     ignored(noLinux),
	"Process.env":             guest("the order and duplicates are kept"),
	"Process.cwd":             guest("required; must be absolute"),
	"Process.capabilities":    guest("the list of 1.0.0-rc4 is accepted too"),
	"Process.rlimits":         guest("a container without one may open 1024 files, up to 1048576, and has any number of processes"),
	"Process.noNewPrivileges": guest(),
	"Process.apparmorProfile": ignored(noLabels),
	"Process.oomScoreAdj":     guest(),
	"Process.scheduler":       guest(),
	"Process.selinuxLabel":    ignored(noLabels),
	"Process.ioPriority":      guest(),
	"Process.execCPUAffinity": guest("of an exec; CPUs that the VM does not have are refused"),

	"Box.height": guest(),
	"Box.width":  guest(),

	"User.uid":            guest(),
	"User.gid":            guest(),
	"User.umask":          guest(),
	"User.additionalGids": guest(),
	"User.username":       ignored(noLinux),

	"LinuxCapabilities.bounding":    guest("capabilities that the guest's kernel does not have are ignored, in all sets"),
	"LinuxCapabilities.effective":   guest(),
	"LinuxCapabilities.inheritable": guest(),
	"LinuxCapabilities.permitted":   guest(),
	"LinuxCapabilities.ambient":     guest(),

	"POSIXRlimit.type": guest(),
	"POSIXRlimit.hard": guest("of RLIMIT_NOFILE at most 1048576; more is ignored"),
	"POSIXRlimit.soft": guest(),

	"Scheduler.policy":   guest("SCHED_ISO is refused"),
	"Scheduler.nice":     guest(),
	"Scheduler.priority": guest(),
	"Scheduler.flags":    guest(),
	"Scheduler.runtime":  guest(),
	"Scheduler.deadline": guest(),
	"Scheduler.period":   guest(),

	"LinuxIOPriority.class":    guest(),
	"LinuxIOPriority.priority": guest(),
	"CPUAffinity.initial":      ignored("the process starts in the container's cgroup at once"),
	"CPUAffinity.final":        guest(),
}
