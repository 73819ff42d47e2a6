package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/fields"
)

// context are the fields that a field needs beside it, by path.
var context = map[string]string{
	"mounts[0].source":      `"mounts":[{"destination":"/a","type":"bind","source":"/x"}]`,
	"mounts[0].type":        `"mounts":[{"destination":"/a","type":"sysfs"}]`,
	"mounts[0].destination": `"mounts":[{"destination":"/b","type":"tmpfs"}]`,
	"mounts[0].options":     `"mounts":[{"destination":"/a","type":"tmpfs"}]`,
	"linux.netDevices":      `"linux":{"netDevices":{"eth1":{}}}`,
	"linux.devices[0].path": `"linux":{"devices":[{"path":"/dev/fuse","type":"c","major":10,"minor":229}]}`,
	"linux.devices[0].type": `"linux":{"devices":[{"path":"/dev/x","type":"c","major":1,"minor":3}]}`,
}

// samples are valid values by path, where a value of the field's type alone is not valid. They may set other fields too.
var samples = map[string]string{
	"root.path":                     `"root":{"path":"other"}`,
	"hooks":                         ``,
	"mounts[0].destination":         `"mounts":[{"destination":"/a","type":"tmpfs"}]`,
	"mounts[0].type":                `"mounts":[{"destination":"/a","type":"tmpfs"}]`,
	"mounts[0].source":              `"mounts":[{"destination":"/a","type":"bind","source":"/b"}]`,
	"mounts[0].options":             `"mounts":[{"destination":"/a","type":"tmpfs","options":["size=1m"]}]`,
	"mounts[0].uidMappings":         idmapped,
	"mounts[0].gidMappings":         idmapped,
	"process.args":                  `"process":{"args":["other"]}`,
	"process.cwd":                   `"process":{"cwd":"/other"}`,
	"process.rlimits[0].type":       `"process":{"rlimits":[{"type":"RLIMIT_CORE","hard":7,"soft":7}]}`,
	"process.rlimits[0].hard":       `"process":{"rlimits":[{"type":"RLIMIT_CORE","hard":7,"soft":7}]}`,
	"process.rlimits[0].soft":       `"process":{"rlimits":[{"type":"RLIMIT_CORE","hard":7,"soft":7}]}`,
	"process.scheduler.policy":      `"process":{"scheduler":{"policy":"SCHED_BATCH"}}`,
	"process.scheduler.nice":        `"process":{"scheduler":{"policy":"SCHED_BATCH","nice":3}}`,
	"process.scheduler.priority":    `"process":{"scheduler":{"policy":"SCHED_RR","priority":3}}`,
	"process.scheduler.flags":       `"process":{"scheduler":{"policy":"SCHED_BATCH","flags":["SCHED_FLAG_RESET_ON_FORK"]}}`,
	"process.scheduler.runtime":     deadline,
	"process.scheduler.deadline":    deadline,
	"process.scheduler.period":      deadline,
	"process.ioPriority.class":      `"process":{"ioPriority":{"class":"IOPRIO_CLASS_RT","priority":3}}`,
	"process.ioPriority.priority":   `"process":{"ioPriority":{"class":"IOPRIO_CLASS_BE","priority":7}}`,
	"process.execCPUAffinity.final": `"process":{"execCPUAffinity":{"final":"0-1"}}`,
	"linux.sysctl":                  `"linux":{"sysctl":{"net.core.somaxconn":"7"}}`,
	"linux.namespaces[0].type":      `"linux":{"namespaces":[{"type":"network"},{"type":"pid"}]}`,
	"linux.namespaces[0].path":      `"linux":{"namespaces":[{"type":"network","path":"/run/netns/x"},{"type":"pid"}]}`,
	"linux.uidMappings":             mapped,
	"linux.gidMappings":             mapped,
	"linux.netDevices":              `"linux":{"netDevices":{"eth0":{"name":"new"}}}`,
	"linux.seccomp.defaultErrnoRet": `"linux":{"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":7}}`,
	"linux.seccomp.defaultAction":   `"linux":{"seccomp":{"defaultAction":"SCMP_ACT_LOG"}}`,
	"linux.seccomp.architectures":   `"linux":{"seccomp":{"defaultAction":"SCMP_ACT_LOG","architectures":["SCMP_ARCH_X86"]}}`,
	"linux.seccomp.flags":           `"linux":{"seccomp":{"defaultAction":"SCMP_ACT_LOG","flags":["SECCOMP_FILTER_FLAG_LOG"]}}`,
	"linux.personality.domain":      `"linux":{"personality":{"domain":"LINUX32"}}`,
	"linux.rootfsPropagation":       `"linux":{"rootfsPropagation":"rslave"}`,
	"linux.resources.unified":       `"linux":{"resources":{"unified":{"memory.high":"7"}}}`,
	"linux.resources.cpu.idle":      `"linux":{"resources":{"cpu":{"idle":1}}}`,
	"vm.kernel.path":                `"vm":{"kernel":{"path":"/kernel"}}`,
	"vm.kernel.initrd":              `"vm":{"kernel":{"path":"/kernel","initrd":"/initrd"}}`,
	"vm.image.path":                 `"vm":{"image":{"path":"/image"}}`,
	"vm.image.format":               `"vm":{"image":{"path":"/image","format":"raw"}}`,
	"vm.hwconfig.memory":            `"vm":{"hwconfig":{"memory":4294967296}}`,
}

const (
	idmapped = `"mounts":[{"destination":"/a","type":"bind","source":"/x","uidMappings":[{"containerID":0,"hostID":7,"size":9}],
		"gidMappings":[{"containerID":0,"hostID":7,"size":9}]}]`
	mapped = `"linux":{"namespaces":[{"type":"user"},{"type":"pid"}],"uidMappings":[{"containerID":0,"hostID":7,"size":9}],
		"gidMappings":[{"containerID":0,"hostID":7,"size":9}]}`
	deadline = `"process":{"scheduler":{"policy":"SCHED_DEADLINE","runtime":1,"deadline":2,"period":3}}`
)

// beginnings are samples for all fields below a path.
var beginnings = map[string]string{
	"linux.uidMappings[0].": mapped, "linux.gidMappings[0].": mapped,
	"mounts[0].uidMappings[0].": idmapped, "mounts[0].gidMappings[0].": idmapped,
	"linux.seccomp.syscalls[0].": `"linux":{"seccomp":{"defaultAction":"SCMP_ACT_LOG","syscalls":[{"names":["a"],"action":"SCMP_ACT_ERRNO",
		"errnoRet":7,"args":[{"index":1,"value":2,"valueTwo":3,"op":"SCMP_CMP_EQ"}]}]}}`,
	"linux.devices[0].": `"linux":{"devices":[{"path":"/dev/null","type":"c","major":1,"minor":3,"fileMode":7,"uid":7,"gid":7}]}`,
	"process.capabilities.": `"process":{"capabilities":{"bounding":["CAP_KILL"],"effective":["CAP_KILL"],"inheritable":["CAP_KILL"],
		"permitted":["CAP_KILL"],"ambient":["CAP_KILL"]}}`,
	"linux.resources.devices[0].": `"linux":{"resources":{"devices":[{"allow":true,"type":"c","major":1,"minor":3,"access":"r"}]}}`,
}

// leaf returns a value of a type in JSON.
func leaf(t *testing.T, of reflect.Type) string {
	t.Helper()
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch of.Kind() {
	case reflect.String:
		return `"some-value"`
	case reflect.Bool:
		return `true`
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return `7`
	case reflect.Slice:
		if fields.IsSpec(of.Elem()) {
			return `[` + structLeaf(t, of.Elem()) + `]`
		}
		return `[` + leaf(t, of.Elem()) + `]`
	case reflect.Map:
		if fields.IsSpec(of.Elem()) {
			return `{"key":` + structLeaf(t, of.Elem()) + `}`
		}
		return `{"key":` + leaf(t, of.Elem()) + `}`
	case reflect.Struct:
		return structLeaf(t, of)
	}
	t.Fatalf("no value of %v", of)
	return ""
}

// structLeaf sets all fields of a struct, so that it is not empty.
func structLeaf(t *testing.T, of reflect.Type) string {
	t.Helper()
	var all []string
	for _, f := range reflect.VisibleFields(of) {
		if f.Anonymous || f.Type.Kind() == reflect.Interface {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, fmt.Sprintf("%q:%s", name, leaf(t, f.Type)))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// everyField calls visit for each field that the tables have, with the fields that set it.
func everyField(t *testing.T, visit func(path, set string, e fields.Entry)) {
	t.Helper()
	var walk func(of reflect.Type, path string, wrap func(string) string)
	walk = func(of reflect.Type, path string, wrap func(string) string) {
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			at, e := strings.TrimPrefix(path+"."+name, "."), fields.EntryOf(of, name)
			here := func(value string) string { return wrap(fmt.Sprintf("%q:%s", name, value)) }
			inner := field.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			into := e.Treatment == fields.Guest || e.Treatment == fields.Host
			switch {
			case into && fields.IsSpec(inner):
				walk(inner, at, func(s string) string { return here("{" + s + "}") })
				continue
			case into && inner.Kind() == reflect.Slice && fields.IsSpec(inner.Elem()):
				walk(inner.Elem(), at+"[0]", func(s string) string { return here("[{" + s + "}]") })
				continue
			}
			set, ok := samples[at]
			for begin, sample := range beginnings {
				if !ok && strings.HasPrefix(at, begin) {
					set, ok = sample, true
				}
			}
			if hook, is := strings.CutPrefix(at, "hooks."); is {
				point, _, _ := strings.Cut(hook, "[")
				set, ok = fmt.Sprintf(`"hooks":{%q:[{"path":"/some-value","args":["a"],"env":["B=c"],"timeout":7}]}`, point), true
			}
			if !ok {
				set = here(leaf(t, field.Type))
			}
			visit(at, set, e)
		}
	}
	walk(reflect.TypeFor[specs.Spec](), "", func(s string) string { return s })
}

// TestEveryField sets each field of the specification. It must change the plan, or be noted, or be refused by name.
func TestEveryField(t *testing.T) {
	o := defaults()
	for kind, path := range map[FileKind]string{Kernel: "/kernel", Initrd: "/initrd", Image: "/image"} {
		o.Allowed = append(o.Allowed, File{Kind: kind, Path: path, SHA256: "abc"})
	}
	count := map[fields.Treatment]int{}
	everyField(t, func(path, set string, e fields.Entry) {
		count[e.Treatment]++
		base, err := Decode(with(t, context[path]), o)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		p, err := Decode(with(t, set), o)
		strict := o
		strict.Strict = true
		_, strictErr := Decode(with(t, set), strict)
		noted := func() bool {
			return p != nil && slices.ContainsFunc(p.Ignored, func(n Note) bool { return n.Field == path && n.Why != "" })
		}
		named := func(err error, class error) bool {
			return errors.Is(err, class) && strings.Contains(err.Error(), path) && !strings.Contains(err.Error(), "\n")
		}
		switch e.Treatment {
		case fields.Refused:
			if !named(err, oci.ErrNotSupported) {
				t.Errorf("%s: %v", path, err)
			}
		case fields.Ignored:
			if err != nil || !noted() || !named(strictErr, oci.ErrNotSupported) {
				t.Errorf("%s: %v, strictly %v", path, err, strictErr)
			}
		default:
			if path == "ociVersion" {
				if !named(err, oci.ErrNotSupported) {
					t.Errorf("%s: %v", path, err)
				}
				return
			}
			if err != nil || strictErr != nil {
				t.Errorf("%s (%s): %v, strictly %v", path, set, err, strictErr)
				return
			}
			if cmp.Equal(base, p) {
				t.Errorf("%s has no effect", path)
			}
			guest, err := json.Marshal(p.Guest)
			if err != nil || e.Treatment == fields.Host && strings.Contains(string(guest), "some-value") {
				t.Errorf("%s reaches the guest: %s, %v", path, guest, err)
			}
		}
	})
	if count[fields.Guest] < 70 || count[fields.Host] < 40 || count[fields.Ignored] < 15 || count[fields.Refused] < 12 {
		t.Errorf("fields: %v", count)
	}
}
