package container

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"
)

// absent is the reason why a flag of podman is not supported. The flag is hidden, and setting it is an error.
type absent string

// String implements pflag.Value.
func (a absent) String() string { return "" }

// Type implements pflag.Value.
func (a absent) Type() string { return "" }

// Set implements pflag.Value.
func (a absent) Set(string) error { return errors.New(string(a)) }

// reasons says why flags of podman run are not supported.
var reasons = []struct {
	why   absent
	flags string // separated by blanks
}{
	{"only amd64 images can run", "arch variant"},
	{"a foreground run shows both streams; -d shows none", "attach"},
	{"set REGISTRY_AUTH_FILE", "authfile"},
	{"the pod's devices are virtual",
		"blkio-weight blkio-weight-device device-cgroup-rule device-read-bps device-read-iops device-write-bps " +
			"device-write-iops gpus rdt-class"},
	{"see registries.conf", "cert-dir tls-verify"},
	{"a Pod has no field for it",
		"cgroup-conf chrootdirs cpu-rt-period cpu-rt-runtime cpuset-cpus cpuset-mems env-merge no-hostname no-hosts " +
			"oom-kill-disable personality pids-limit shm-size-systemd umask unsetenv-all"},
	{"a pod is a VM and shares no namespace, user or cgroup with the host",
		"cgroup-parent cgroupns cgroups gidmap hostuser ipc pid preserve-fd preserve-fds subgidname subuidname uidmap " +
			"userns uts"},
	{"bulkhead run -d prints the pod's name", "cidfile pod-id-file"},
	{"there is no conmon", "conmon-pidfile"},
	{"use --cpus", "cpu-period cpu-quota cpu-shares"},
	{"use bulkhead login", "creds"},
	{"images are not encrypted", "decryption-key"},
	{"use bulkhead attach --detach-keys", "detach-keys"},
	{"name the variables: -e NAME", "env-host"},
	{"every port can be published with -p", "expose"},
	{"the image's /etc/group is used", "group-entry"},
	{"an image's health checks are not run; describe the pod in a file with a livenessProbe or readinessProbe",
		"health-cmd health-interval health-on-failure health-retries health-start-period health-startup-cmd " +
			"health-timeout"},
	{"use --add-host", "hosts-file"},
	{"name the variables: -e HTTP_PROXY", "http-proxy"},
	{"an image's volumes are directories of the container", "image-volume"},
	{"--init uses the VM's own init", "init-path"},
	{"each pod has a network of its own; publish ports with -p", "ip ip6 link-local-ip mac-address network-alias"},
	{"output is kept for bulkhead logs", "log-driver log-opt"},
	{"use --memory; a file can have requests as well", "memory-reservation"},
	{"a pod has no swap", "memory-swap memory-swappiness"},
	{"an image's health checks are not run", "no-healthcheck"},
	{"it follows from the requests and limits, as in Kubernetes", "oom-score-adj"},
	{"only Linux images can run", "os"},
	{"the image's /etc/passwd is used", "passwd passwd-entry"},
	{"its processes are not processes of the host", "pidfile"},
	{"only linux/amd64 images can run", "platform"},
	{"describe pods with several containers in a file", "pod"},
	{"remove the pod first: bulkhead rm -f NAME", "replace"},
	{"describe the order of containers in a file", "requires"},
	{"run it again", "retry retry-delay"},
	{"use bulkhead image rm", "rmi"},
	{"load the directory as an image", "rootfs"},
	{"use --wait", "sdnotify"},
	{"use --security-opt seccomp=PROFILE", "seccomp-policy"},
	{"describe the pod in a file with a Secret", "secret"},
	{"a signal stops the pod", "sig-proxy"},
	{"systemd gets no special directories", "systemd"},
	{"set -e TZ=ZONE", "tz"},
	{"set the variable to another value: -e NAME=", "unsetenv"},
	{"use a named volume in both: -v NAME:POD", "volumes-from"},
}

// flagsAlone lists the unsupported flags that take no value.
var flagsAlone = []string{
	"env-host", "http-proxy", "no-healthcheck", "no-hosts", "no-hostname", "oom-kill-disable", "passwd", "replace", "rmi", "rootfs",
	"sig-proxy", "tls-verify", "unsetenv-all",
}

// addAbsent adds the unsupported flags.
func addAbsent(flags *pflag.FlagSet) {
	for _, r := range reasons {
		for name := range strings.FieldsSeq(r.flags) {
			flags.Var(r.why, name, "")
			flags.Lookup(name).Hidden = true
		}
	}
	for _, name := range flagsAlone {
		flags.Lookup(name).NoOptDefVal = "true"
	}
}
