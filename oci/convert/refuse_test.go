package convert

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/oci"
)

// TestRefuses: each error has its class and names its field.
func TestRefuses(t *testing.T) {
	const user = `"namespaces":[{"type":"user"},{"type":"pid"}]`
	for fields, want := range map[string]struct {
		class error
		says  string
	}{
		`"ociVersion":"2.0.0"`: {oci.ErrNotSupported, "ociVersion"},
		`"ociVersion":""`:      {oci.ErrNotSupported, "ociVersion"},

		`"root":{"path":"missing"}`:                      {os.ErrNotExist, "root.path"},
		`"root":{"path":"/file"}`:                        {oci.ErrInvalid, "root.path"},
		`"linux":{"rootfsPropagation":"sideways"}`:       {oci.ErrInvalid, "linux.rootfsPropagation"},
		`"linux":{"cgroupsPath":"/a/../../b"}`:           {oci.ErrInvalid, "linux.cgroupsPath"},
		`"linux":{"cgroupsPath":"/a\nb"}`:                {oci.ErrInvalid, "linux.cgroupsPath"},
		`"annotations":{"io.bulkhead.strict":"perhaps"}`: {oci.ErrInvalid, "annotations.io.bulkhead.strict"},
		`"process":{"env":["A=\u0000"]}`:                 {oci.ErrInvalid, "process.env[0]"},

		`"process":{"cwd":"srv"}`:                     {oci.ErrInvalid, "process.cwd"},
		`"process":{"cwd":""}`:                        {oci.ErrInvalid, "process.cwd"},
		`"process":{"user":{"umask":512}}`:            {oci.ErrInvalid, "process.user.umask"},
		`"process":{"oomScoreAdj":1001}`:              {oci.ErrInvalid, "process.oomScoreAdj"},
		`"process":{"oomScoreAdj":-1001}`:             {oci.ErrInvalid, "process.oomScoreAdj"},
		`"process":{"consoleSize":{"height":65536}}`:  {oci.ErrInvalid, "process.consoleSize"},
		`"process":{"rlimits":[{"type":"RLIMIT_X"}]}`: {oci.ErrInvalid, "process.rlimits"},
		`"process":{"rlimits":[{"type":"RLIMIT_AS","soft":2,"hard":1}]}`: {
			oci.ErrInvalid, "RLIMIT_AS: the soft limit 2",
		},
		`"process":{"rlimits":[{"type":"RLIMIT_AS"},{"type":"RLIMIT_AS"}]}`: {oci.ErrInvalid, "a second RLIMIT_AS"},
		`"process":{"scheduler":{"policy":"SCHED_ISO"}}`: {
			oci.ErrNotSupported, "process.scheduler.policy",
		},
		`"process":{"scheduler":{"policy":"SCHED_X"}}`:                                            {oci.ErrInvalid, "process.scheduler.policy"},
		`"process":{"scheduler":{"policy":"SCHED_OTHER","nice":20}}`:                              {oci.ErrInvalid, "process.scheduler.nice"},
		`"process":{"scheduler":{"policy":"SCHED_OTHER","priority":1}}`:                           {oci.ErrInvalid, "process.scheduler.priority"},
		`"process":{"scheduler":{"policy":"SCHED_FIFO","priority":100}}`:                          {oci.ErrInvalid, "process.scheduler.priority"},
		`"process":{"scheduler":{"policy":"SCHED_FIFO","priority":1,"runtime":1}}`:                {oci.ErrInvalid, "process.scheduler"},
		`"process":{"scheduler":{"policy":"SCHED_DEADLINE","runtime":3,"deadline":2,"period":4}}`: {oci.ErrInvalid, "process.scheduler"},
		`"process":{"scheduler":{"policy":"SCHED_IDLE","flags":["X"]}}`:                           {oci.ErrInvalid, "process.scheduler.flags"},
		`"process":{"ioPriority":{"class":"IOPRIO_CLASS_BE","priority":8}}`:                       {oci.ErrInvalid, "process.ioPriority"},
		`"process":{"ioPriority":{"class":"X"}}`:                                                  {oci.ErrInvalid, "process.ioPriority"},
		`"process":{"execCPUAffinity":{"final":"0-2"}}`: {
			oci.ErrNotSupported, "CPU 2: the VM has 2 CPUs",
		},
		`"process":{"execCPUAffinity":{"final":"2-1"}}`: {
			oci.ErrInvalid, "process.execCPUAffinity.final",
		},
		`"process":{"execCPUAffinity":{"final":"a"}}`: {
			oci.ErrInvalid, "process.execCPUAffinity.final",
		},

		`"linux":{"namespaces":[{"type":"time"}]}`:                                   {oci.ErrNotSupported, "linux.namespaces[0]"},
		`"linux":{"namespaces":[{"type":"x"}]}`:                                      {oci.ErrInvalid, "linux.namespaces[0]"},
		`"linux":{"namespaces":[{"type":"pid"},{"type":"pid"}]}`:                     {oci.ErrInvalid, "linux.namespaces[1]"},
		`"linux":{"namespaces":[{"type":"network","path":"n"}]}`:                     {oci.ErrInvalid, "linux.namespaces[0]"},
		`"linux":{"namespaces":[{"type":"pid"},{"type":"mount","path":"/n"}]}`:       {oci.ErrNotSupported, "mount namespace"},
		`"linux":{"namespaces":[{"type":"pid","path":"/n"}]}`:                        {oci.ErrNotSupported, "pid namespace"},
		`"linux":{"namespaces":[{"type":"pid"},{"type":"ipc","path":"/n"}]}`:         {oci.ErrNotSupported, "ipc namespace"},
		`"linux":{"namespaces":[{"type":"pid"},{"type":"uts","path":"/n"}]}`:         {oci.ErrNotSupported, "uts namespace"},
		`"linux":{"uidMappings":[{"size":1}]}`:                                       {oci.ErrInvalid, "linux.uidMappings"},
		`"linux":{` + user + `}`:                                                     {oci.ErrInvalid, "linux.uidMappings"},
		`"linux":{` + user + `,"uidMappings":[{"size":1}]}`:                          {oci.ErrInvalid, "linux.gidMappings"},
		`"linux":{` + user + `,"uidMappings":[{"containerID":1,"size":4294967295}]}`: {oci.ErrInvalid, "linux.uidMappings"},

		`"hostname":"` + strings.Repeat("h", 65) + `"`:                       {oci.ErrInvalid, "hostname"},
		`"domainname":"a/b"`:                                                 {oci.ErrInvalid, "domainname"},
		`"domainname":"a","linux":{"sysctl":{"kernel.domainname":"b"}}`:      {oci.ErrInvalid, "domainname"},
		`"linux":{"sysctl":{"kernel.core_pattern":"|/x"}}`:                   {oci.ErrNotSupported, "linux.sysctl"},
		`"linux":{"netDevices":{"eth/0":{}}}`:                                {oci.ErrInvalid, "linux.netDevices"},
		`"linux":{"netDevices":{"a":{"name":"x"},"b":{"name":"x"}}}`:         {oci.ErrInvalid, "linux.netDevices"},
		`"linux":{"netDevices":{"a":{}},"namespaces":[{"type":"pid"}]}`:      {oci.ErrInvalid, "linux.netDevices"},
		`"linux":{"netDevices":{"a":{"name":"0123456789012345"}}}`:           {oci.ErrInvalid, "linux.netDevices"},
		`"linux":{"personality":{"domain":"BSD"}}`:                           {oci.ErrInvalid, "linux.personality.domain"},
		`"linux":{"personality":{"domain":"LINUX","flags":["x"]}}`:           {oci.ErrNotSupported, "linux.personality.flags"},
		`"linux":{"maskedPaths":[""]}`:                                       {oci.ErrInvalid, "linux.maskedPaths"},
		`"linux":{"timeOffsets":{"monotonic":{"secs":1}}}`:                   {oci.ErrNotSupported, "linux.timeOffsets"},
		`"linux":{"seccomp":{"defaultAction":"SCMP_ACT_NOTIFY"}}`:            {oci.ErrNotSupported, "linux.seccomp"},
		`"linux":{"seccomp":{"defaultAction":"SCMP_ACT_LOG","flags":["X"]}}`: {oci.ErrInvalid, "linux.seccomp.flags"},
		`"linux":{"seccomp":{"defaultAction":"SCMP_ACT_LOG","syscalls":[{"names":["a"],"action":"SCMP_ACT_NOTIFY"}]}}`: {
			oci.ErrNotSupported, "syscalls[0].action",
		},
		`"linux":{"seccomp":{"defaultAction":"SCMP_ACT_LOG","listenerPath":"/s"}}`: {oci.ErrNotSupported, "linux.seccomp.listenerPath"},

		`"hooks":{"prestart":[{"path":"/a"},{"path":"b"}]}`:             {oci.ErrInvalid, "hooks.prestart[1].path"},
		`"hooks":{"poststop":[{"path":"/a","timeout":0}]}`:              {oci.ErrInvalid, "hooks.poststop[0].timeout"},
		`"hooks":{"startContainer":[{"path":"/a","timeout":-1}]}`:       {oci.ErrInvalid, "hooks.startContainer[0].timeout"},
		`"hooks":{"poststart":[{"path":"/a","timeout":9999999999999}]}`: {oci.ErrInvalid, "hooks.poststart[0].timeout"},

		`"linux":{"resources":{"memory":{"limit":2,"swap":1}}}`:           {oci.ErrInvalid, "linux.resources.memory.swap"},
		`"linux":{"resources":{"memory":{"limit":-2}}}`:                   {oci.ErrInvalid, "linux.resources.memory"},
		`"linux":{"resources":{"cpu":{"idle":2}}}`:                        {oci.ErrInvalid, "linux.resources.cpu.idle"},
		`"linux":{"resources":{"cpu":{"period":18446744073709551615}}}`:   {oci.ErrInvalid, "linux.resources.cpu.period"},
		`"linux":{"resources":{"unified":{"../x.y":"1"}}}`:                {oci.ErrInvalid, "linux.resources.unified"},
		`"linux":{"resources":{"unified":{"memory":"1"}}}`:                {oci.ErrInvalid, "linux.resources.unified"},
		`"linux":{"resources":{"unified":{"cgroup.procs":"1"}}}`:          {oci.ErrNotSupported, "linux.resources.unified"},
		`"linux":{"resources":{"devices":[{"allow":true,"type":"x"}]}}`:   {oci.ErrInvalid, "linux.resources.devices[0].type"},
		`"linux":{"resources":{"devices":[{"allow":true,"access":"x"}]}}`: {oci.ErrInvalid, "linux.resources.devices[0].access"},

		`"linux":{"devices":[{"path":"/","type":"c"}]}`:                               {oci.ErrInvalid, "linux.devices[0].path"},
		`"linux":{"devices":[{"path":"/dev/x","type":"c","major":-1}]}`:               {oci.ErrInvalid, "linux.devices[0]"},
		`"linux":{"devices":[{"path":"/dev/x","type":"c","major":226,"minor":0}]}`:    {oci.ErrNotSupported, "linux.devices[0]"},
		`"linux":{"devices":[{"path":"/dev/kvm","type":"c","major":10,"minor":232}]}`: {oci.ErrNotSupported, "linux.devices[0]"},

		`"annotations":{"io.bulkhead.cpus":"0"}`:    {oci.ErrInvalid, "annotations.io.bulkhead.cpus"},
		`"annotations":{"io.bulkhead.cpus":"NaN"}`:  {oci.ErrInvalid, "annotations.io.bulkhead.cpus"},
		`"annotations":{"io.bulkhead.memory":"-1"}`: {oci.ErrInvalid, "annotations.io.bulkhead.memory"},
		`"annotations":{"io.bulkhead.memory":"1G"}`: {oci.ErrInvalid, "annotations.io.bulkhead.memory"},
		`"annotations":{"io.kubernetes.cri.sandbox-memory":"x"}`: {
			oci.ErrInvalid, "annotations.io.kubernetes.cri.sandbox-memory",
		},
		`"annotations":{"io.kubernetes.cri.container-type":"x"}`:                      {oci.ErrInvalid, "io.kubernetes.cri.container-type"},
		`"annotations":{"io.bulkhead.sockets":"a:b:/c:d"}`:                            {oci.ErrNotSupported, "annotations.io.bulkhead.sockets"},
		`"annotations":{"io.bulkhead.sockets":"a"}`:                                   {oci.ErrInvalid, "annotations.io.bulkhead.sockets"},
		`"annotations":{"io.bulkhead.volumes":"a:/srv"}`:                              {oci.ErrNotSupported, "annotations.io.bulkhead.volumes"},
		`"annotations":{"io.bulkhead.volumes":"../a:/srv"}`:                           {oci.ErrInvalid, "annotations.io.bulkhead.volumes"},
		`"annotations":{"io.bulkhead.kernel":"/k","io.bulkhead.kernel-sha256":"abc"}`: {oci.ErrNotSupported, "annotations.io.bulkhead.kernel"},
		`"vm":{"kernel":{"path":"/k"}}`:                                               {oci.ErrNotSupported, "vm.kernel.path"},
		`"vm":{"hypervisor":{"path":"/q"}}`:                                           {oci.ErrNotSupported, "vm.hypervisor"},
		`"vm":{"hwconfig":{"irqs":[1]}}`:                                              {oci.ErrNotSupported, "vm.hwconfig.irqs"},
		`"vm":{"image":{"format":"qcow2"}}`:                                           {oci.ErrNotSupported, "vm.image.format"},
	} {
		o := defaults()
		o.Host = world{"/file": {Type: Regular}}
		p, err := Decode(with(t, fields), o)
		if !errors.Is(err, want.class) || !strings.Contains(err.Error(), want.says) || p != nil {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

func TestBundleNeedsItsParts(t *testing.T) {
	if _, err := Bundle(nil, defaults()); !errors.Is(err, oci.ErrInvalid) {
		t.Error(err)
	}
	spec, err := oci.DecodeBundle([]byte(simple))
	if err != nil {
		t.Fatal(err)
	}
	o := defaults()
	o.Bundle = "c1"
	if _, err := Bundle(spec, o); !errors.Is(err, oci.ErrInvalid) || !strings.Contains(err.Error(), "absolute") {
		t.Error(err)
	}
	spec.Root.Path = ""
	if _, err := Bundle(spec, defaults()); !errors.Is(err, oci.ErrInvalid) {
		t.Error(err)
	}
}
