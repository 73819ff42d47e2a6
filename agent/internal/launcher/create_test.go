package launcher

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// bare is a specification for the launcher. more replaces parts of it: the keys "linux.x" are of the Linux part.
func bare(more map[string]string) Spec {
	s := Spec{
		Top: map[string]json.RawMessage{
			"ociVersion": json.RawMessage(`"1.0.2"`), "process": json.RawMessage(plain), "root": json.RawMessage(`{"path":"/r"}`),
			"linux": json.RawMessage(`{}`),
		},
		Linux:       map[string]json.RawMessage{"namespaces": json.RawMessage(`[{"type":"mount"},{"type":"pid"}]`)},
		Annotations: map[string]string{"mine": "x"},
	}
	for key, value := range more {
		if rest, ok := strings.CutPrefix(key, "linux."); ok {
			s.Linux[rest] = json.RawMessage(value)
		} else if rest, ok := strings.CutPrefix(key, "annotation "); ok {
			s.Annotations[rest] = value
		} else {
			s.Top[key] = json.RawMessage(value)
		}
	}
	return s
}

// convert converts a specification to a message.
func (s Spec) convert() (*message, error) {
	m := &message{flags: create}
	c, err := s.container()
	if err == nil {
		err = c.fill(m, s.Top["process"])
	}
	if err == nil {
		err = s.fill(m)
	}
	if err == nil {
		joined, e := s.namespaces(m)
		closeAll(joined)
		err = e
	}
	return m, err
}

func TestConvert(t *testing.T) {
	t.Parallel()
	m, err := bare(map[string]string{
		"root": `{"path":"/r","readonly":true}`, "hostname": `"h"`, "domainname": `"d"`, "hooks": "null",
		"mounts": `[{"destination":"/proc","type":"proc","source":"proc","options":["nosuid","ro","rw","exec"]},
			{"destination":"/x","source":"/y","options":["rbind","rslave","ro"]},
			{"destination":"/t","type":"tmpfs","options":["size=1","noatime","mode=7"]}]`,
		"linux.devices":     `[{"path":"/dev/a/b","type":"c","major":1,"minor":300,"uid":2,"gid":3},{"path":"/dev/p","type":"p","fileMode":384}]`,
		"linux.namespaces":  `[{"type":"mount"},{"type":"cgroup"},{"type":"ipc"},{"type":"uts","path":"/proc/self/ns/uts"}]`,
		"linux.maskedPaths": `["/m"]`, "linux.readonlyPaths": `["/o"]`, "linux.rootfsPropagation": `"rprivate"`,
	}).convert()
	if err != nil {
		t.Fatal(err)
	}
	got := *m
	want := got
	want.names = [4]string{"/r", "h", "d", ""}
	want.flags = create | readOnly | usualDevices
	want.namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWIPC
	want.mounts = []mount{
		{unix.MS_NOSUID | unix.MS_RDONLY, "proc", "/proc", "proc", ""},
		{unix.MS_BIND | unix.MS_REC | unix.MS_SLAVE | unix.MS_RDONLY, "/y", "/x", "", ""},
		{unix.MS_NOATIME, "tmpfs", "/t", "tmpfs", "size=1,mode=7"},
	}
	want.nodes = []node{
		{"dev/a", "b", unix.S_IFCHR | 0o666, uint32(unix.Mkdev(1, 300)), 2, 3}, {"dev", "p", unix.S_IFIFO | 0o600, 0, 0, 0},
	}
	want.masked, want.closed = []string{"/m"}, []string{"/o"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(message{}, mount{}, node{})); diff != "" {
		t.Error(diff)
	}
	m, err = bare(map[string]string{"mounts": `[{"destination":"/dev/","source":"/dev","options":["bind"]}]`}).convert()
	if err != nil || m.flags != create {
		t.Errorf("the VM's /dev: %v, flags %x", err, m.flags)
	}
}

// TestLeft: everything unusual is left to crun.
func TestLeft(t *testing.T) {
	t.Parallel()
	if _, err := bare(nil).convert(); err != nil {
		t.Fatal(err)
	}
	for key, values := range map[string][]string{
		"hooks": {
			`{"startContainer":[{"path":"/x"}]}`}, "solaris": {`{}`}, "unknown": {`1`}, "root": {`{"path":"r"}`, `1`,
			`{}`}, "hostname": {`1`},
		"mounts": {
			`1`, `[{"destination":"/x","type":"tmpfs","options":["tmpcopyup"]}]`, `[{"destination":"/x","source":"/y","options":["bind","rro"]}]`,
			`[{"destination":"/x","source":"y","options":["bind"]}]`, `[{"destination":"/x","type":"bind","source":"/y"}]`,
			`[{"destination":"/proc","type":"proc","options":["hidepid=2"]}]`, `[{"destination":"/sys","type":"sysfs"}]`,
			`[{"destination":"/x","type":"cgroup","options":["ro"]}]`, `[{"destination":"/x"}]`,
			`[{"destination":"/x","source":"/y","options":["bind","idmap"]}]`,
			`[{"destination":"/x","source":"/y","options":["bind"],"uidMappings":[{"size":1}]}]`,
		},
		"linux.devices": {
			`[{"path":"/dev/x","type":"x"}]`, `[{"path":"dev/x","type":"c"}]`, `[{"path":"/dev/..","type":"c"}]`,
			`[{"path":"/dev/x","type":"c","major":4096}]`, `1`,
		},
		"linux.namespaces": {
			`[{"type":"pid"}]`, `[{"type":"mount"},{"type":"user"}]`, `[{"type":"mount"},{"type":"pid"},{"type":"pid"}]`,
			`[{"type":"mount","path":"/x"}]`,
			`[{"type":"mount"},{"type":"pid","path":"/nowhere"}]`, `1`,
		},
		"linux.seccomp": {`{"defaultAction":"SCMP_ACT_ALLOW"}`}, "linux.sysctl": {`{"kernel.msgmax":"1"}`},
		"linux.personality": {`{"domain":"LINUX32"}`},
		"linux.timeOffsets": {`{}`}, "linux.rootfsPropagation": {`"shared"`}, "linux.maskedPaths": {`1`},
		"annotation run.oci.keep_original_groups": {"1"}, "annotation " + compiled: {"!", "YWJj"},
	} {
		for _, value := range values {
			if _, err := bare(map[string]string{key: value}).convert(); !errors.Is(err, ErrDeclined) {
				t.Errorf("%s = %s: %v", key, value, err)
			}
		}
	}
}

// TestBounds: a message that is too large for the launcher is not sent.
func TestBounds(t *testing.T) {
	t.Parallel()
	m, err := bare(nil).convert()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(m *message){
		"mounts": func(m *message) { m.mounts = make([]mount, maxMounts+1) }, "paths": func(m *message) {
			m.closed = make([]string,
				maxMounts+1)
		},
		"devices": func(m *message) { m.nodes = make([]node, maxNodes+1) }, "a NUL byte": func(m *message) { m.names[1] = "a\x00b" },
		"bytes": func(m *message) { m.masked = []string{string(make([]byte, maxMessage))} },
	} {
		larger := *m
		change(&larger)
		if _, err := larger.marshal(); !errors.Is(err, ErrDeclined) {
			t.Errorf("too many %s: %v", name, err)
		}
	}
}
