package podapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestReadTakesClaims(t *testing.T) {
	found, err := Read("f.yaml", []byte(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: prod, labels: {app: db}}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: fast
  resources: {requests: {storage: 1Gi}, limits: {storage: 2Gi}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: prod}
spec:
  replicas: 2
  selector: {matchLabels: {app: db}}
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Delete}
  template:
    metadata: {labels: {app: db}}
    spec:
      volumes: [{name: data, emptyDir: {}}, {name: other, persistentVolumeClaim: {claimName: My_Volume, readOnly: true}}]
      containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /d}, {name: log, mountPath: /l}]}]
  volumeClaimTemplates:
  - metadata: {name: data, labels: {tier: back}}
    spec: {accessModes: [ReadWriteOncePod], resources: {requests: {storage: 5Gi}}}
  - metadata: {name: log}
    spec: {accessModes: [ReadWriteMany], volumeMode: Filesystem, resources: {requests: {storage: 1Mi}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var claims []string
	for _, c := range found.Claims {
		size := c.Spec.Resources.Requests[corev1.ResourceStorage]
		claims = append(claims, fmt.Sprintf("%s/%s %v %s %s %v",
			c.Namespace, c.Name, c.Spec.AccessModes, size.String(), *c.Spec.VolumeMode, c.Labels))
	}
	if diff := cmp.Diff([]string{
		"prod/data [ReadWriteOnce] 1Gi Filesystem map[app:db]",
		"prod/data-db-0 [ReadWriteOncePod] 5Gi Filesystem map[app:db tier:back]", "prod/log-db-0 [ReadWriteMany] 1Mi Filesystem map[app:db]",
		"prod/data-db-1 [ReadWriteOncePod] 5Gi Filesystem map[app:db tier:back]", "prod/log-db-1 [ReadWriteMany] 1Mi Filesystem map[app:db]",
	}, claims); diff != "" {
		t.Error(diff)
	}
	for i, pod := range found.Pods {
		var volumes []string
		for _, v := range pod.Spec.Volumes {
			volumes = append(volumes, v.Name+" "+v.PersistentVolumeClaim.ClaimName)
		}
		want := []string{fmt.Sprintf("data data-db-%d", i), fmt.Sprintf("log log-db-%d", i), "other My_Volume"}
		if diff := cmp.Diff(want, volumes); diff != "" {
			t.Error(diff)
		}
	}
}

func TestReadRefusesClaims(t *testing.T) {
	const whole = "accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}"
	for _, tc := range []struct {
		name, spec, want string
		class            error
	}{
		{"no modes", "resources: {requests: {storage: 1Gi}}", "f.yaml:4: spec.accessModes: is required", errInvalid},
		{"a mode", "accessModes: [Often], resources: {requests: {storage: 1Gi}}", `spec.accessModes[0]: "Often" is not one of`, errInvalid},
		{"modes", "accessModes: [ReadWriteOncePod, ReadWriteMany], resources: {requests: {storage: 1Gi}}", "cannot be together", errInvalid},
		{"no size", "accessModes: [ReadWriteOnce]", "spec.resources.requests.storage: is required", errInvalid},
		{"nothing", "accessModes: [ReadWriteOnce], resources: {requests: {storage: 0}}", "0 is not greater than 0", errInvalid},
		{"memory", "accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi, memory: 1Gi}}", "memory: is not honoured", errNotHonoured},
		{"a bare one for many", "accessModes: [ReadWriteMany], volumeMode: Block, resources: {requests: {storage: 1Gi}}",
			"a disk is for one pod", errInvalid},
		{"a selector", whole + ", selector: {matchLabels: {a: b}}", "spec.selector: is not honoured: there are no", errNotHonoured},
		{"a volume", whole + ", volumeName: v", "spec.volumeName: is not honoured", errNotHonoured},
		{"a source", whole + ", dataSource: {kind: VolumeSnapshot, name: s}", "spec.dataSource: is not honoured", errNotHonoured},
		{"an unknown field", whole + ", size: 1", "spec.size: unknown field", errSyntax},
	} {
		text := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {" + tc.spec + "}\n"
		_, err := Read("f.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, tc.class) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: p%s}\nspec:\n  volumes: [{name: v, persistentVolumeClaim: {claimName: %s}}]\n" +
		"  containers: [{name: c, image: i}]\n"
	for _, tc := range []struct{ annotations, claim, want string }{
		{"", "a_B.c-d", ""},
		{"", `""`, "claimName: is required"},
		{"", "../x", "claimName: \"../x\""},
		{", annotations: {io.bulkhead.cache/v: none}", "a", ""},
		{", annotations: {io.bulkhead.cache/v: some}", "a", "is not auto, none or always"},
		{", annotations: {io.bulkhead.copy/v: image}", "a", ""},
		{", annotations: {io.bulkhead.copy/v: host}", "a", "is not image"},
		{", annotations: {io.bulkhead.copy/w: image}", "a", "the pod has no persistentVolumeClaim"},
		{", annotations: {io.bulkhead.cache/w: none}", "a", "the pod has no hostPath or persistentVolumeClaim"},
	} {
		_, err := Read("f.yaml", fmt.Appendf(nil, pod, tc.annotations, tc.claim))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v", tc, err)
		}
	}
}

func TestReadRefusesDevices(t *testing.T) {
	for devices, want := range map[string]string{
		"[{name: v, devicePath: /dev/x}]":                                 "",
		"[{name: e, devicePath: /dev/x}]":                                 `BlockDevice named "e"`,
		"[{name: none, devicePath: /dev/x}]":                              `BlockDevice named "none"`,
		"[{name: d, devicePath: /dev/x}]":                                 "",
		"[{name: h, devicePath: /dev/x}]":                                 `BlockDevice named "h"`,
		"[{name: v}]":                                                     "devicePath: is required",
		"[{name: v, devicePath: dev}]":                                    "is not a valid path for a device",
		"[{name: v, devicePath: /m}]":                                     "appears twice",
		"[{name: v, devicePath: /dev/x}, {name: v, devicePath: /dev/x/}]": "appears twice",
		"[{name: w, devicePath: /dev/x}]":                                 `"w" is mounted too`,
	} {
		_, err := Read("f.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  volumes: ["+
			"{name: v, persistentVolumeClaim: {claimName: a}}, {name: w, persistentVolumeClaim: {claimName: b}}, {name: e, emptyDir: {}}, "+
			"{name: d, hostPath: {path: /dev/sdb, type: BlockDevice}}, {name: h, hostPath: {path: /dev/sdb}}]\n"+
			"  containers: [{name: c, image: i, volumeMounts: [{name: w, mountPath: /m}], volumeDevices: "+devices+"}]\n"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", devices, err)
		}
	}
}

// TestReadDeviceAccess: an annotation sets containers' access to a block device, and only to one.
func TestReadDeviceAccess(t *testing.T) {
	for note, want := range map[string]string{
		"io.bulkhead.device/d: r": "", "io.bulkhead.device/d: rwm": "",
		`io.bulkhead.device/d: ""`: "is not r, rw or rwm", "io.bulkhead.device/d: w": "is not r, rw or rwm",
		"io.bulkhead.device/d: rx": "is not r, rw or rwm",
		"io.bulkhead.device/h: r":  "no hostPath", "io.bulkhead.device/none: r": "no hostPath",
	} {
		_, err := Read("f.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {"+note+"}}\nspec:\n  volumes: ["+
			"{name: d, hostPath: {path: /dev/sdb, type: BlockDevice}}, {name: h, hostPath: {path: /dev/sdb}}]\n"+
			"  containers: [{name: c, image: i, volumeDevices: [{name: d, devicePath: /dev/x}]}]\n"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", note, err)
		}
	}
}
