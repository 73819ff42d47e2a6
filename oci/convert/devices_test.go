package convert

import (
	"encoding/json"
	"strings"
	"testing"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

func TestDevices(t *testing.T) {
	const sdc = `"devices":[{"path":"/dev/xvdc","type":"b","major":8,"minor":32,"fileMode":432,"gid":6}]`
	for name, tc := range map[string]struct {
		linux, nodes, rules, disks string // as JSON, without unset fields
		notes                      int
		all                        bool
	}{
		"none": {linux: `{}`, nodes: `null`, rules: `[{"allow":false,"access":"rwm"}]`, disks: `null`},
		"default rules": {
			linux: `{"resources":{"devices":[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","access":"m"},
				{"allow":true,"type":"c","major":1,"minor":3,"access":"rwm"},{"allow":true,"type":"c","major":136,"access":"rwm"},
				{"allow":true,"type":"c","major":-1,"minor":-1,"access":"m"},{"allow":false,"type":"b","major":8,"access":"w"}]}}`,
			nodes: `null`, disks: `null`,
			rules: `[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","access":"m"},
				{"allow":true,"type":"c","major":1,"minor":3,"access":"rwm"},{"allow":true,"type":"c","major":136,"access":"rwm"},
				{"allow":true,"type":"c","major":-1,"minor":-1,"access":"m"},{"allow":false,"type":"b","major":8,"access":"w"}]`,
		},
		"rules for devices of the host": {
			linux: `{"resources":{"devices":[{"allow":true,"type":"c","major":226,"access":"rw"},{"allow":true,"type":"b","major":8,"access":"r"},
				{"allow":true,"type":"c","major":10,"access":"r"}]}}`,
			nodes: `null`, rules: `[{"allow":false,"access":"rwm"}]`, disks: `null`, notes: 3,
		},
		"known devices": {
			linux: `{"devices":[{"path":"/dev/fuse","type":"c","major":10,"minor":229,"fileMode":384,"uid":1,"gid":2},
				{"path":"/dev/my-null","type":"u","major":1,"minor":3},{"path":"/dev/console","type":"c","major":5,"minor":1},
				{"path":"/dev/pipe","type":"p","major":7,"minor":7}]}`,
			nodes: `[{"path":"/dev/fuse","type":"c","major":10,"minor":229,"fileMode":384,"uid":1,"gid":2},
				{"path":"/dev/my-null","type":"u","major":1,"minor":3},{"path":"/dev/console","type":"c","major":5,"minor":1},
				{"path":"/dev/pipe","type":"p","major":0,"minor":0}]`,
			rules: `[{"allow":false,"access":"rwm"}]`, disks: `null`,
		},
		"a disk": {
			linux: `{` + sdc + `,"resources":{"devices":[{"allow":false,"access":"rwm"},
				{"allow":true,"type":"b","major":8,"minor":32,"access":"rwm"}]}}`,
			nodes: `null`, rules: `[{"allow":false,"access":"rwm"}]`, disks: `[{"Path":"","Major":8,"Minor":32,"ReadOnly":false}]`,
		},
		"a read-only disk": {
			linux: `{` + sdc + `,"resources":{"devices":[{"allow":false},{"allow":true,"type":"b","major":8,"minor":32,"access":"r"}]}}`,
			nodes: `null`, rules: `[{"allow":false}]`, disks: `[{"Path":"","Major":8,"Minor":32,"ReadOnly":true}]`,
		},
		"a disk without a rule": {
			linux: `{` + sdc + `,"resources":{"devices":[{"allow":true,"type":"b","major":8,"minor":32},{"allow":false}]}}`,
			nodes: `null`, rules: `[{"allow":false}]`, disks: `[{"Path":"","Major":8,"Minor":32,"ReadOnly":true}]`,
		},
		"privileged": {
			linux: `{"devices":[{"path":"/dev/sda","type":"b","major":8,"minor":0},{"path":"/dev/dri/card0","type":"c","major":226,"minor":0},
				{"path":"/dev/fuse","type":"c","major":10,"minor":229}],
				"resources":{"devices":[{"allow":false},{"allow":true,"type":"a","access":"rwm"}]}}`,
			nodes: `[{"path":"/dev/fuse","type":"c","major":10,"minor":229}]`, disks: `null`,
			rules: `[{"allow":false},{"allow":true,"type":"a","access":"rwm"}]`, notes: 1, all: true,
		},
		"not all access": {
			linux: `{"resources":{"devices":[{"allow":true,"access":"r"}]}}`, nodes: `null`, rules: `[{"allow":true,"access":"r"}]`, disks: `null`,
		},
	} {
		p := plan(t, `"linux":`+tc.linux)
		for _, one := range []struct {
			what, want string
			got        any
		}{
			{"nodes", tc.nodes, p.Guest.Linux.Devices}, {"rules", tc.rules, p.Guest.Linux.Resources.Devices}, {"disks", tc.disks, p.Disks},
		} {
			got, err := json.Marshal(one.got)
			if want := strings.Join(strings.Fields(one.want), ""); err != nil || string(got) != want {
				t.Errorf("%s: %s %s, want %s", name, one.what, got, want)
			}
		}
		if len(p.Ignored) != tc.notes || (p.Guest.Annotations[agentv1.AllDevices] == "true") != tc.all {
			t.Errorf("%s: notes %v, annotations %v", name, p.Ignored, p.Guest.Annotations)
		}
	}
}

func TestNestedDevice(t *testing.T) {
	o := defaults()
	o.Nested = true
	p, err := Decode(with(t, `"linux":{"devices":[{"path":"/dev/kvm","type":"c","major":10,"minor":232}],
		"resources":{"devices":[{"allow":true,"type":"c","major":10,"minor":232,"access":"rw"}]}}`), o)
	if err != nil || len(p.Guest.Linux.Devices) != 1 || len(p.Guest.Linux.Resources.Devices) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}
