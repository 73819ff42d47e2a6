package spec_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/agent/internal/spec"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

type image map[string]string

func (i image) ReadFile(path string, limit int) ([]byte, error) {
	s := i[path]
	return []byte(s[:min(limit, len(s))]), nil
}

var users = image{
	"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n# comment\nbroken:x:y:z\ndemo:x:1000:1001::/home/demo:/bin/sh\nhomeless:x:7:7:::\n" +
		"4000:x:0:0::/root:/bin/sh\n+4000:x:0:0::/root:/bin/sh\n04000:x:0:0::/root:/bin/sh\n",
	"/etc/group": "root:x:0:\ndemo:x:1001:\nextra:x:2000:root,demo\nother:x:3000:x\n4000:x:0:\n+4:x:0:\nlast:x:77:last\n",
}

func provided(volumes *[]containerv1.Mount) spec.VM {
	return spec.VM{
		Root: "/r", Cgroup: "/pod/c", Shm: "/shm", Guest: spec.Guest{Users: users, Hostname: "pod"},
		Files: map[string]string{"/etc/hosts": "/pod/hosts", "/etc/resolv.conf": "/pod/resolv"},
		Volume: func(v containerv1.Mount) (string, error) {
			*volumes = append(*volumes, v)
			if block, ok := v.Source.(containerv1.Block); ok {
				return "/volumes/" + block.Name, nil
			}
			return "/volumes/" + v.Source.(containerv1.Dir).Name, nil
		},
		Block: func(b containerv1.Block) (major, minor uint32, err error) {
			if b.Name != "sdb" {
				return 0, 0, errdefs.ErrNotFound
			}
			return 254, 16, nil
		},
		Join: func(kind, container string) (string, error) {
			if container == "gone" {
				return "", errdefs.ErrNotFound
			}
			return "/ns/" + kind + "/" + container, nil
		},
		File:      func(at, content string) (string, error) { return "/files" + at + "=" + content, nil },
		HasDevice: func(kind string, major, minor int64) bool { return kind == "c" && major == 1 },
		Devices: func() ([]spec.Device, error) {
			return []spec.Device{{Path: "/dev/x", Type: "c", Major: 1, Minor: 2, Mode: 0o600}}, nil
		},
	}
}

func TestAdjust(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want string }{
		"least": {
			`{"process":{"args":["a"]}}`,
			`{"ociVersion":"1.0.2","root":{"path":"/r"},
			"process":{"args":["a"],"cwd":"/","env":["HOME=/root","HOSTNAME=pod"],"terminal":false,"user":{}},
			"mounts":[{"destination":"/etc/hosts","type":"bind","source":"/pod/hosts","options":["bind","rw"]},
				{"destination":"/etc/resolv.conf","type":"bind","source":"/pod/resolv","options":["bind","rw"]}],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"}]}}`,
		},
		"the pod's things": {
			`{"ociVersion":"1.3.0","hostname":"h","hooks":{"prestart":[]},"annotations":{"k":"v=w=x"},
			"root":{"path":"/host","readonly":true},
			"process":{"args":["a"],"env":["HOME=/h","A=b=c","HOSTNAME=mine"],"cwd":"/w","apparmorProfile":"x","selinuxLabel":"y","unknown":1},
			"mounts":[{"destination":"/dev/shm/","type":"bind","source":"/dev/shm"},
				{"destination":"/etc/hosts","type":"bind","source":"/mine"},
				{"destination":"/v","type":"bulkhead.emptydir","source":"v",
					"options":["ro","medium=Memory","size=77","mode=1700","group=7","subpath=a=b,c"]},
				{"destination":"/c","type":"cgroup","source":"cgroup"}],
			"linux":{"namespaces":[{"type":"network","path":"/var/run/netns/x"},{"type":"pid"},{"type":"mount"},{"type":"cgroup"}],
				"seccomp":{"defaultAction":"SCMP_ACT_ERRNO"},"mountLabel":"z","sysctl":{"net.x":"1"},"resources":{"pids":{"limit":5}}}}`,
			`{"ociVersion":"1.0.2","annotations":{"k":"v=w=x"},"root":{"path":"/r","readonly":true},
			"process":{"args":["a"],"cwd":"/w","env":["HOME=/h","A=b=c","HOSTNAME=mine"],"terminal":false,"user":{},"unknown":1},
			"mounts":[{"destination":"/dev/shm","type":"bind","source":"/shm","options":["rbind","rw","nosuid","nodev","noexec"]},
				{"destination":"/etc/hosts","type":"bind","source":"/mine"},
				{"destination":"/v","type":"bind","source":"/volumes/v","options":["rbind","ro"]},
				{"destination":"/c","type":"cgroup2","source":"cgroup"},
				{"destination":"/etc/resolv.conf","type":"bind","source":"/pod/resolv","options":["bind","ro"]}],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"},{"type":"pid"},{"type":"cgroup"}],
				"seccomp":{"defaultAction":"SCMP_ACT_ERRNO"},"resources":{"pids":{"limit":5}}}}`,
		},
		"the VM's things": {
			`{"annotations":{"io.bulkhead.all-devices":"true"},"process":{"args":["a"]},
			"mounts":[{"destination":"/etc/hosts","type":"bulkhead.file","source":"text","options":["bind","ro"]}],
			"linux":{"namespaces":[{"type":"pid","path":"bulkhead.pod"},{"type":"pid","path":"bulkhead.container:c1"}]}}`,
			`{"ociVersion":"1.0.2","annotations":{"io.bulkhead.all-devices":"true"},"root":{"path":"/r"},
			"process":{"args":["a"],"cwd":"/","env":["HOME=/root","HOSTNAME=pod"],"terminal":false,"user":{}},
			"mounts":[{"destination":"/etc/hosts","type":"bind","source":"/files/etc/hosts=text","options":["bind","ro"]},
				{"destination":"/etc/resolv.conf","type":"bind","source":"/pod/resolv","options":["bind","rw"]}],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"},{"type":"pid","path":"/ns/pid/"},{"type":"pid","path":"/ns/pid/c1"}],
				"devices":[{"path":"/dev/x","type":"c","major":1,"minor":2,"fileMode":384,"uid":0,"gid":0}]}}`,
		},
		"its own namespaces": {
			`{"hostname":"h","domainname":"d","process":{"args":["a"]},
			"mounts":[{"destination":"/dev/shm","type":"tmpfs","source":"shm","options":["nosuid","size=1048576"]},
				{"destination":"/etc","type":"bind","source":"/mine"}],
			"linux":{"namespaces":[{"type":"uts"},{"type":"ipc"},{"type":"network"}],
				"sysctl":{"kernel.domainname":"d","kernel/sem":"1 2 3 4","fs.mqueue.msg_max":"9","kernel.shmmax":"8"}}}`,
			`{"ociVersion":"1.0.2","hostname":"h","domainname":"d","root":{"path":"/r"},
			"process":{"args":["a"],"cwd":"/","env":["HOME=/root","HOSTNAME=pod"],"terminal":false,"user":{}},
			"mounts":[{"destination":"/dev/shm","type":"tmpfs","source":"shm","options":["nosuid","size=1048576"]},
				{"destination":"/etc","type":"bind","source":"/mine"},
				{"destination":"/etc/hosts","type":"bind","source":"/pod/hosts","options":["bind","rw"]},
				{"destination":"/etc/resolv.conf","type":"bind","source":"/pod/resolv","options":["bind","rw"]}],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"},{"type":"uts"},{"type":"ipc"}],
				"sysctl":{"kernel.domainname":"d","kernel/sem":"1 2 3 4","fs.mqueue.msg_max":"9","kernel.shmmax":"8"}}}`,
		},
		"another container's namespaces": {
			`{"hostname":"h","process":{"args":["a"]},
			"linux":{"namespaces":[{"type":"ipc","path":"bulkhead.container:c1"},{"type":"uts","path":"bulkhead.pod"}]}}`,
			`{"ociVersion":"1.0.2","root":{"path":"/r"},
			"process":{"args":["a"],"cwd":"/","env":["HOME=/root","HOSTNAME=pod"],"terminal":false,"user":{}},
			"mounts":[{"destination":"/etc/hosts","type":"bind","source":"/pod/hosts","options":["bind","rw"]},
				{"destination":"/etc/resolv.conf","type":"bind","source":"/pod/resolv","options":["bind","rw"]}],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"},{"type":"ipc","path":"/ns/ipc/c1"}]}}`,
		},
		"a whole container": {
			`{"annotations":{"io.bulkhead.verbatim":"true","io.bulkhead.all-devices":"false","run.oci.hooks.stdout":"/x","k":"v"},
			"process":{"args":["a"],"env":["A=1","HOME=/h","A=2"],"cwd":"/w","user":{"uid":7,"gid":8,"additionalGids":[9],"umask":2,
				"username":"ignored"}},
			"mounts":[{"destination":"/v","type":"bulkhead.emptydir","source":"v"},
				{"destination":"/s","type":"none","source":"/dev/shm","options":["rbind","ro"]},
				{"destination":"/dev/shm","type":"tmpfs","source":"/dev/shm","options":["size=1k"]}]}`,
			`{"ociVersion":"1.0.2","annotations":{"k":"v"},"root":{"path":"/r"},
			"process":{"args":["a"],"env":["A=1","HOME=/h","A=2"],"cwd":"/w","terminal":false,
				"user":{"uid":7,"gid":8,"additionalGids":[9],"umask":2}},
			"mounts":[{"destination":"/v","type":"bind","source":"/volumes/v","options":["rbind"]},
				{"destination":"/s","type":"none","source":"/shm","options":["rbind","ro"]},
				{"destination":"/dev/shm","type":"tmpfs","source":"/dev/shm","options":["size=1k"]}],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"}]}}`,
		},
		"a compiled seccomp filter": {
			`{"annotations":{"io.bulkhead.verbatim":"true","io.bulkhead.seccomp-filter":"AAAA","run.oci.seccomp_bpf_data":"BBBB"},
			"process":{"args":["a"],"env":["HOME=/"],"cwd":"/"},"linux":{"seccomp":{"defaultAction":"SCMP_ACT_ALLOW"}}}`,
			`{"ociVersion":"1.0.2","annotations":{"run.oci.seccomp_bpf_data":"AAAA"},"root":{"path":"/r"},
			"process":{"args":["a"],"env":["HOME=/"],"cwd":"/","terminal":false},"mounts":[],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"}],"seccomp":{"defaultAction":"SCMP_ACT_ALLOW"}}}`,
		},
		"devices of the VM": {
			`{"annotations":{"io.bulkhead.verbatim":"true","io.bulkhead.all-devices":"true"},
			"process":{"args":["a"],"env":["HOME=/"],"cwd":"/"},
			"linux":{"devices":[{"path":"/n","type":"c","major":1,"minor":3,"fileMode":8630,"uid":1,"gid":2},{"path":"/u","type":"u","major":1},
				{"path":"/f","type":"p"}]}}`,
			`{"ociVersion":"1.0.2","annotations":{},"root":{"path":"/r"},
			"process":{"args":["a"],"env":["HOME=/"],"cwd":"/","terminal":false},"mounts":[],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"}],"devices":[
				{"path":"/dev/x","type":"c","major":1,"minor":2,"fileMode":384,"uid":0,"gid":0},
				{"path":"/n","type":"c","major":1,"minor":3,"fileMode":8630,"uid":1,"gid":2},
				{"path":"/u","type":"u","major":1},{"path":"/f","type":"p"}]}}`,
		},
		"a device with a mode of its own": {
			`{"annotations":{"io.bulkhead.verbatim":"true","io.bulkhead.all-devices":"true"},
			"process":{"args":["a"],"env":["HOME=/"],"cwd":"/"},"linux":{"devices":[{"path":"/dev/x","type":"c","major":1,"fileMode":1}]}}`,
			`{"ociVersion":"1.0.2","annotations":{},"root":{"path":"/r"},
			"process":{"args":["a"],"env":["HOME=/"],"cwd":"/","terminal":false},"mounts":[],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"}],
				"devices":[{"path":"/dev/x","type":"c","major":1,"fileMode":1}]}}`,
		},
		"a pod's privileged device": {
			`{"annotations":{"io.bulkhead.all-devices":"true"},"process":{"args":["a"]},"mounts":[{"destination":"/etc","type":"bind"}],
			"linux":{"devices":[{"path":"/dev/x","type":"c","major":1,"fileMode":1},{"path":"/dev/y","type":"c","major":9}]}}`,
			`{"ociVersion":"1.0.2","annotations":{"io.bulkhead.all-devices":"true"},"root":{"path":"/r"},
			"process":{"args":["a"],"cwd":"/","env":["HOME=/root","HOSTNAME=pod"],"terminal":false,"user":{}},
			"mounts":[{"destination":"/etc","type":"bind"},{"destination":"/etc/hosts","type":"bind","source":"/pod/hosts","options":["bind","rw"]},
				{"destination":"/etc/resolv.conf","type":"bind","source":"/pod/resolv","options":["bind","rw"]}],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"}],
				"devices":[{"path":"/dev/x","type":"c","major":1,"minor":2,"fileMode":384,"uid":0,"gid":0},
					{"path":"/dev/y","type":"c","major":9}]}}`,
		},
		"a whole container without HOME": {
			`{"annotations":{"io.bulkhead.verbatim":"true"},
			"process":{"args":["a"],"env":["HOME="],"cwd":"/","user":{"uid":1000,"gid":0},"rlimits":[]}}`,
			`{"ociVersion":"1.0.2","annotations":{},"root":{"path":"/r"},
			"process":{"args":["a"],"env":["HOME=","HOME=/home/demo"],"cwd":"/","terminal":false,"user":{"uid":1000,"gid":0},"rlimits":[]},
			"mounts":[],"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"}]}}`,
		},
		"hooks inside": {
			`{"process":{"args":["a"]},"mounts":[{"destination":"/etc","type":"bulkhead.emptydir","source":"v","options":["ro"]}],
			"hooks":{"prestart":[],"startContainer":[{"path":"/h","args":["h","x"],"env":["A=b"],"timeout":3}]}}`,
			`{"ociVersion":"1.0.2","root":{"path":"/r"},"hooks":{"startContainer":[{"path":"/h","args":["h","x"],"env":["A=b"],"timeout":3}]},
			"process":{"args":["a"],"cwd":"/","env":["HOME=/root","HOSTNAME=pod"],"terminal":false,"user":{}},
			"mounts":[{"destination":"/etc","type":"bind","source":"/volumes/v","options":["rbind","ro"]}],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"}]}}`,
		},
		"a read-only volume at /etc": {
			`{"process":{"args":["a"]},
			"mounts":[{"destination":"/etc","type":"bulkhead.emptydir","source":"v","options":["rbind","ro"]},
				{"destination":"/etc/hosts","type":"bulkhead.file","source":"text","options":["bind","ro"]}]}`,
			`{"ociVersion":"1.0.2","root":{"path":"/r"},
			"process":{"args":["a"],"cwd":"/","env":["HOME=/root","HOSTNAME=pod"],"terminal":false,"user":{}},
			"mounts":[{"destination":"/etc","type":"bind","source":"/volumes/v","options":["rbind","ro"]}],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"}]}}`,
		},
		"a block device": {
			`{"process":{"args":["a"]},
			"mounts":[{"destination":"/dev/xvda","type":"bulkhead.block","source":"sdb","options":["access=rw","mode=660","group=6"]},
				{"destination":"/v","type":"bulkhead.block","source":"v","options":["ro","fs=ext4"]}],
			"linux":{"resources":{"devices":[{"allow":false}]}}}`,
			`{"ociVersion":"1.0.2","root":{"path":"/r"},
			"process":{"args":["a"],"cwd":"/","env":["HOME=/root","HOSTNAME=pod"],"terminal":false,"user":{}},
			"mounts":[{"destination":"/v","type":"bind","source":"/volumes/v","options":["rbind","ro"]},
				{"destination":"/etc/hosts","type":"bind","source":"/pod/hosts","options":["bind","rw"]},
				{"destination":"/etc/resolv.conf","type":"bind","source":"/pod/resolv","options":["bind","rw"]}],
			"linux":{"cgroupsPath":"/pod/c","namespaces":[{"type":"mount"}],
				"devices":[{"path":"/dev/xvda","type":"b","major":254,"minor":16,"fileMode":432,"uid":0,"gid":6}],
				"resources":{"devices":[{"allow":false},{"allow":true,"type":"b","major":254,"minor":16,"access":"rw"}]}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := spec.Parse(json.RawMessage(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			var volumes []containerv1.Mount
			if err := s.Adjust(provided(&volumes), false); err != nil {
				t.Fatal(err)
			}
			got, err := s.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode(t, []byte(tc.want)), decode(t, got)); diff != "" {
				t.Error(diff)
			}
			if s.SharedPID != (name != "the pod's things") {
				t.Errorf("shared process namespace: %v", s.SharedPID)
			}
			if name != "the pod's things" {
				return
			}
			if diff := cmp.Diff([]containerv1.Mount{{
				Destination: "/v", Source: containerv1.Dir{Name: "v", Medium: containerv1.Memory, Size: 77, Mode: 0o1700},
				Group: 7, SubPath: "a=b,c", Options: []string{"ro"},
			}}, volumes); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(map[string]string{"net.x": "1"}, s.Sysctls); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func decode(t *testing.T, b []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

func TestAdjustRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   string
		want error
	}{
		"nothing":           {``, errdefs.ErrInvalidArgument},
		"no process":        {`{}`, errdefs.ErrInvalidArgument},
		"process null":      {`{"process":null}`, agentv1.ErrNoCommand},
		"no args":           {`{"process":{}}`, agentv1.ErrNoCommand},
		"empty command":     {`{"process":{"args":[""]}}`, agentv1.ErrNoCommand},
		"a hook":            {`{"process":{"args":["a"]},"hooks":{"poststop":[{"path":"/x"}]}}`, errdefs.ErrInvalidArgument},
		"an older hook":     {`{"process":{"args":["a"]},"hooks":{"prestart":[{"path":"/x"}],"startContainer":[]}}`, errdefs.ErrInvalidArgument},
		"a hook nowhere":    {`{"process":{"args":["a"]},"hooks":{"startContainer":[{"path":"x"}]}}`, errdefs.ErrInvalidArgument},
		"no hook":           {`{"process":{"args":["a"]},"hooks":{"startContainer":["x"]}}`, errdefs.ErrInvalidArgument},
		"user namespace":    {`{"process":{"args":["a"]},"linux":{"namespaces":[{"type":"user"}]}}`, errdefs.ErrNotImplemented},
		"time namespace":    {`{"process":{"args":["a"]},"linux":{"namespaces":[{"type":"time"}]}}`, errdefs.ErrNotImplemented},
		"unknown namespace": {`{"process":{"args":["a"]},"linux":{"namespaces":[{"type":"moon"}]}}`, errdefs.ErrInvalidArgument},
		"another's mounts": {
			`{"process":{"args":["a"]},"linux":{"namespaces":[{"type":"mount","path":"/proc/1/ns/mnt"}]}}`,
			errdefs.ErrNotImplemented,
		},
		"mapped users":  {`{"process":{"args":["a"]},"linux":{"uidMappings":[{"size":1}]}}`, errdefs.ErrNotImplemented},
		"mapped groups": {`{"process":{"args":["a"]},"linux":{"gidMappings":[{"size":1}]}}`, errdefs.ErrNotImplemented},
		"mounts":        {`{"process":{"args":["a"]},"mounts":{}}`, errdefs.ErrInvalidArgument},
		"volume's size": {
			`{"process":{"args":["a"]},
			"mounts":[{"destination":"/v","type":"bulkhead.emptydir","source":"v","options":["size=-1"]}]}`,
			errdefs.ErrInvalidArgument,
		},
		"volume's medium": {
			`{"process":{"args":["a"]},
			"mounts":[{"destination":"/v","type":"bulkhead.emptydir","source":"v","options":["medium=Paper"]}]}`,
			errdefs.ErrInvalidArgument,
		},
		"a shared directory of no name": {
			`{"process":{"args":["a"]},
			"mounts":[{"destination":"/v","type":"bulkhead.share","source":""}]}`,
			errdefs.ErrInvalidArgument,
		},
		"a block device": {
			`{"process":{"args":["a"]},
			"mounts":[{"destination":"/v","type":"bulkhead.block","source":"/dev/sdb","options":["fs=xfs"]}]}`,
			errdefs.ErrInvalidArgument,
		},
		"a device without access": {
			`{"process":{"args":["a"]},
			"mounts":[{"destination":"/v","type":"bulkhead.block","source":"/dev/sdb"}]}`,
			errdefs.ErrInvalidArgument,
		},
		"a device of the host": {
			`{"annotations":{"io.bulkhead.verbatim":"true"},"process":{"args":["a"],"cwd":"/"},
			"linux":{"devices":[{"path":"/dev/null","type":"c","major":1,"minor":3},{"path":"/dev/kvm","type":"c","major":10,"minor":232}]}}`,
			errdefs.ErrNotImplemented,
		},
		"a device of an unknown type": {
			`{"annotations":{"io.bulkhead.verbatim":"true"},"process":{"args":["a"],"cwd":"/"},
			"linux":{"devices":[{"path":"/dev/null","type":"x","major":1,"minor":3}]}}`,
			errdefs.ErrNotImplemented,
		},
		"devices": {`{"process":{"args":["a"]},"linux":{"devices":{}}}`, errdefs.ErrInvalidArgument},
		"a device that is not there": {
			`{"process":{"args":["a"]},
			"mounts":[{"destination":"/v","type":"bulkhead.block","source":"none","options":["access=r"]}]}`,
			errdefs.ErrNotFound,
		},
		"user":  {`{"process":{"args":["a"],"user":{"username":"nobody"}}}`, errdefs.ErrInvalidArgument},
		"group": {`{"process":{"args":["a"],"user":{"username":"demo:nobody"}}}`, errdefs.ErrInvalidArgument},
		"linux": {`{"process":{"args":["a"]},"linux":[]}`, errdefs.ErrInvalidArgument},
		"process namespace of the host": {
			`{"process":{"args":["a"]},
			"linux":{"namespaces":[{"type":"pid","path":"/proc/1/ns/pid"}]}}`,
			errdefs.ErrNotImplemented,
		},
		"process namespace without a container": {
			`{"process":{"args":["a"]},
			"linux":{"namespaces":[{"type":"pid","path":"bulkhead.container:"}]}}`,
			errdefs.ErrNotImplemented,
		},
		"process namespace that ended": {
			`{"process":{"args":["a"]},
			"linux":{"namespaces":[{"type":"pid","path":"bulkhead.container:gone"}]}}`,
			errdefs.ErrNotFound,
		},
		"env":         {`{"process":{"args":["a"],"env":"A=b"}}`, errdefs.ErrInvalidArgument},
		"annotations": {`{"process":{"args":["a"]},"annotations":{"a":1}}`, errdefs.ErrInvalidArgument},
		"no directory": {
			`{"annotations":{"io.bulkhead.verbatim":"true"},"process":{"args":["a"]}}`,
			errdefs.ErrInvalidArgument,
		},
		"a relative directory": {
			`{"annotations":{"io.bulkhead.verbatim":"true"},"process":{"args":["a"],"cwd":"w"}}`,
			errdefs.ErrInvalidArgument,
		},
		"a variable without a value": {
			`{"annotations":{"io.bulkhead.verbatim":"true"},"process":{"args":["a"],"cwd":"/","env":["A"]}}`,
			errdefs.ErrInvalidArgument,
		},
		"a variable without a name": {
			`{"annotations":{"io.bulkhead.verbatim":"true"},"process":{"args":["a"],"cwd":"/","env":["=a"]}}`,
			errdefs.ErrInvalidArgument,
		},
		"an argument that ends early": {
			`{"annotations":{"io.bulkhead.verbatim":"true"},"process":{"args":["a","b\u0000c"],"cwd":"/"}}`,
			errdefs.ErrInvalidArgument,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var volumes []containerv1.Mount
			s, err := spec.Parse(json.RawMessage(tc.in))
			if err == nil {
				err = s.Adjust(provided(&volumes), false)
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("error: %v, want %v", err, tc.want)
			}
		})
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	type user struct {
		UID    uint32   `json:"uid"`
		GID    uint32   `json:"gid"`
		Groups []uint32 `json:"additionalGids"`
	}
	for name, tc := range map[string]struct {
		want user
		home string
	}{
		"root":       {user{0, 0, []uint32{0, 2000}}, "/root"},
		"demo":       {user{1000, 1001, []uint32{1001, 2000}}, "/home/demo"},
		"1000":       {user{1000, 1001, []uint32{1001, 2000}}, "/home/demo"},
		"demo:other": {user{1000, 3000, []uint32{3000, 2000}}, "/home/demo"},
		"demo:4":     {user{1000, 4, []uint32{4, 2000}}, "/home/demo"},
		// Strict: the image's /etc/group does not count.
		"demo::strict":   {user{1000, 1001, []uint32{1001}}, "/home/demo"},
		"1000:4:strict":  {user{1000, 4, []uint32{4}}, "/home/demo"},
		"4321::strict":   {user{4321, 0, []uint32{0}}, "/"},
		"demo::loose":    {},
		"demo:4:strict:": {},
		"4321":           {user{4321, 0, []uint32{0}}, "/"},
		"4321:extra":     {user{4321, 2000, []uint32{2000}}, "/"},
		"homeless":       {user{7, 7, []uint32{7}}, "/"},
		"demo:":          {user{1000, 1001, []uint32{1001, 2000}}, "/home/demo"},
		"4294967294":     {user{1<<32 - 2, 0, []uint32{0}}, "/"},
		"4294967295":     {},
		"demo:extra ":    {},
		":extra":         {user{0, 2000, []uint32{2000}}, "/root"},
		"root:4":         {user{0, 4, []uint32{4, 2000}}, "/root"},
		// The image's entries with these names belong to root.
		"4000":       {user{4000, 0, []uint32{0}}, "/"},
		"4000:4000":  {user{4000, 4000, []uint32{4000}}, "/"},
		"demo:4000":  {user{1000, 4000, []uint32{4000, 2000}}, "/home/demo"},
		"04000":      {user{4000, 0, []uint32{0}}, "/"},
		"+4000":      {},
		"demo:+4":    {},
		" 4000":      {},
		"demo: 4":    {},
		"4294967296": {},
		"-1":         {},
	} {
		raw, err := spec.Process(json.RawMessage(`{"args":["a"],"user":{"username":"`+name+`"}}`), spec.Guest{Users: users}, true)
		if tc.home == "" {
			if !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Errorf("%q: %s, %v", name, raw, err)
			}
			continue
		}
		var got struct {
			User user     `json:"user"`
			Env  []string `json:"env"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &got)
		}
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, got.User); diff != "" {
			t.Errorf("%q: %s", name, diff)
		}
		if diff := cmp.Diff([]string{"HOME=" + tc.home}, got.Env); diff != "" {
			t.Errorf("%q: %s", name, diff)
		}
	}
}

// TestVerbatimLimits: a process without limits has its container's, if it is verbatim.
func TestVerbatimLimits(t *testing.T) {
	t.Parallel()
	first := json.RawMessage(`[{"type":"RLIMIT_CORE","soft":0,"hard":0}]`)
	for process, want := range map[string]string{
		`{"args":["a"],"cwd":"/"}`:                 `"rlimits":` + string(first),
		`{"args":["a"],"cwd":"/","rlimits":null}`:  `"rlimits":` + string(first),
		`{"args":["a"],"cwd":"/","rlimits":[]}`:    `"rlimits":` + string(first),
		`{"args":["a"],"cwd":"/","rlimits":[{}]}`:  `"rlimits":[{}]`,
		`{"args":["a"],"cwd":"/","rlimits":"all"}`: "",
	} {
		got, err := spec.Process(json.RawMessage(process), spec.Guest{Users: users, Verbatim: true, Rlimits: first}, false)
		if want == "" && !errors.Is(err, errdefs.ErrInvalidArgument) || want != "" && (err != nil || !strings.Contains(string(got), want)) {
			t.Errorf("%s: %s, %v", process, got, err)
		}
		if got, err := spec.Process(json.RawMessage(process), spec.Guest{Users: users, Rlimits: first}, false); err != nil ||
			strings.Contains(string(got), string(first)) {
			t.Errorf("%s in a pod: %s, %v", process, got, err)
		}
	}
}

// TestUser: the specification returns the first process's user as numbers.
func TestUser(t *testing.T) {
	t.Parallel()
	for process, want := range map[string]agentv1.User{
		`{"args":["a"],"user":{"username":"demo:4","additionalGids":[7]}}`: {UID: 1000, GID: 4, Groups: []uint32{4, 2000, 7}},
		`{"args":["a"],"user":{"uid":5,"gid":6},"env":["HOME=/"]}`:         {UID: 5, GID: 6},
		`{"args":["a"]}`: {},
	} {
		s, err := spec.Parse([]byte(`{"process":` + process + `}`))
		if err == nil {
			err = s.Adjust(provided(new([]containerv1.Mount)), false)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.User()
		if err != nil || !cmp.Equal(*got.Is, want) {
			t.Errorf("%s: %+v, %v", process, got, err)
		}
		// The container changes its /etc/passwd later.
		now := image{"/etc/passwd": "demo:x:0:0::/root:/bin/sh\n"}
		if got.Name == "" {
			continue
		}
		for name, uid := range map[string]uint32{got.Name: want.UID, "demo": 0} {
			guest := spec.Guest{Users: now, Known: got, Hostname: "h"}
			raw, err := spec.Process(json.RawMessage(`{"args":["a"],"user":{"username":"`+name+`"}}`), guest, false)
			var process struct{ User struct{ UID uint32 } }
			if err == nil {
				err = json.Unmarshal(raw, &process)
			}
			if err != nil || process.User.UID != uid {
				t.Errorf("%s afterwards: %s, %v", name, raw, err)
			}
		}
	}
}

func FuzzAdjust(f *testing.F) {
	f.Add([]byte(`{"process":{"args":["a"],"user":{"username":"demo"}},
		"mounts":[{"destination":"/v","type":"bulkhead.emptydir"}],"linux":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := spec.Parse(b)
		if err != nil {
			return
		}
		var volumes []containerv1.Mount
		if s.Adjust(provided(&volumes), true) == nil {
			if _, err := s.Encode(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestDeviceRules: only rules that hold without crun are removed, unchanged.
func TestDeviceRules(t *testing.T) {
	t.Parallel()
	const rules = `[{"allow":false, "access":"rwm"}]`
	for name, tc := range map[string]struct {
		resources, rules, want string
		ruled                  bool
	}{
		"without":     {`{"pids":{"limit":5}}`, "", `{"pids":{"limit":5}}`, true},
		"an empty":    {`{"devices":[]}`, "", `{"devices":[]}`, true},
		"of crun's":   {`{"devices":` + rules + `}`, rules, `{"devices":` + rules + `}`, false},
		"of a before": {`{"devices":` + rules + `,"pids":{"limit":5}}`, rules, `{"pids":{"limit":5}}`, true},
	} {
		s, err := spec.Parse(json.RawMessage(`{"process":{"args":["a"]},"linux":{"resources":` + tc.resources + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		m := provided(nil)
		m.Ruled = func(rules string) bool { return tc.ruled && rules == tc.rules }
		if err := s.Adjust(m, false); err != nil {
			t.Fatal(err)
		}
		config, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Linux struct{ Resources json.RawMessage }
		}
		if err := json.Unmarshal(config, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decode(t, []byte(tc.want)), decode(t, got.Linux.Resources)); diff != "" || s.DeviceRules != tc.rules {
			t.Errorf("%s: rules %q, %s", name, s.DeviceRules, diff)
		}
	}
}

// TestEncodeForExec: the result has everything that crun needs for an exec, and no large parts.
func TestEncodeForExec(t *testing.T) {
	t.Parallel()
	s, err := spec.Parse(json.RawMessage(`{"process":{"args":["a"]},"annotations":{"k":"v","io.bulkhead.seccomp-filter":"AAAA"},
		"mounts":[{"destination":"/x"}],
		"linux":{"namespaces":[{"type":"pid"}],"personality":{"domain":"LINUX32"},"resources":{"pids":{"limit":5}},"maskedPaths":["/proc/x"],
		"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","flags":["SECCOMP_FILTER_FLAG_LOG"],"syscalls":[{"names":["read"]}]}}}`))
	if err == nil {
		err = s.Adjust(provided(nil), false)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.EncodeForExec()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"ociVersion":"1.0.2","root":{"path":"/r"},"annotations":{"k":"v"},
		"process":{"args":["a"],"cwd":"/","env":["HOME=/root","HOSTNAME=pod"],"terminal":false,"user":{}},
		"linux":{"namespaces":[{"type":"mount"},{"type":"pid"}],"personality":{"domain":"LINUX32"},
			"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","flags":["SECCOMP_FILTER_FLAG_LOG"]}}}`
	if diff := cmp.Diff(decode(t, []byte(want)), decode(t, got)); diff != "" {
		t.Error(diff)
	}
	whole, err := spec.Parse(json.RawMessage(`{"annotations":{"io.bulkhead.verbatim":"true"},
		"process":{"args":["a"],"env":["A=b"],"cwd":"/"},"linux":{"sysctl":{"a":"b"}}}`))
	if err == nil {
		err = whole.Adjust(provided(nil), false)
	}
	if err == nil {
		got, err = whole.EncodeForExec()
	}
	if err != nil || strings.Contains(string(got), "A=b") {
		t.Errorf("a whole container's environment is kept for others: %s, %v", got, err)
	}
	bare, err := spec.Parse(json.RawMessage(`{"process":{"args":["a"]}}`))
	if err == nil {
		err = bare.Adjust(provided(nil), false)
	}
	if err == nil {
		got, err = bare.EncodeForExec()
	}
	if err != nil || strings.Contains(string(got), "seccomp") {
		t.Errorf("without a filter: %s, %v", got, err)
	}
}
