package cdi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

const vendors = `{"cdiVersion": "1.1.0", "kind": "example.com/card", "containerEdits": {"env": ["CARDS=1"]}, "devices": [
  {"name": "a", "containerEdits": {"env": ["A=1"], "additionalGids": [0, 77], "deviceNodes": [
    {"path": "/dev/card", "hostPath": "/dev/fuse", "permissions": "rw"}, {"path": "/dev/fuse"}]}},
  {"name": "b", "containerEdits": {"env": ["A=2"]}},
  {"name": "files", "containerEdits": {"mounts": [{"hostPath": "/usr/lib/card", "containerPath": "/x"}]}},
  {"name": "hook", "containerEdits": {"hooks": [{"hookName": "createContainer", "path": "/usr/bin/hook"}]}},
  {"name": "net", "containerEdits": {"netDevices": [{"hostInterfaceName": "ib0", "name": "eth1"}]}},
  {"name": "rdt", "containerEdits": {"intelRdt": {"closID": "x"}}},
  {"name": "mode", "containerEdits": {"deviceNodes": [{"path": "/dev/fuse", "uid": 5}]}}]}`

func named(names ...string) *runtimeapi.ContainerConfig {
	config := &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "A", Value: []byte("0")}}}
	for _, name := range names {
		config.CDIDevices = append(config.CDIDevices, &runtimeapi.CDIDevice{Name: name})
	}
	return config
}

func TestApply(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "card.json"), []byte(vendors), 0o600); err != nil {
		t.Fatal(err)
	}
	got := named("example.com/card=a", "example.com/card=b")
	if err := Apply(got, []string{dir}); err != nil {
		t.Fatal(err)
	}
	want := named("example.com/card=a", "example.com/card=b")
	for _, pair := range []string{"A1", "CARDS1", "A2"} {
		want.Envs = append(want.Envs, &runtimeapi.KeyValue{Key: pair[:len(pair)-1], Value: []byte(pair[len(pair)-1:])})
	}
	want.Devices = []*runtimeapi.Device{
		{HostPath: "/dev/fuse", ContainerPath: "/dev/card", Permissions: "rw"}, {HostPath: "/dev/fuse", ContainerPath: "/dev/fuse"},
	}
	want.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{SupplementalGroups: []int64{77}}}
	if !proto.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	for name, word := range map[string]string{
		"files": "/usr/lib/card", "hook": "/usr/bin/hook", "net": "ib0", "rdt": "RDT", "mode": "/dev/fuse", "none": dir,
	} {
		err := Apply(named("example.com/card="+name), []string{dir})
		if grpccode.Of(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), word) ||
			!strings.Contains(err.Error(), "example.com/card="+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Apply(named("card"), []string{dir}); grpccode.Of(err) != codes.InvalidArgument {
		t.Errorf("an invalid name: %v", err)
	}
	if err := Apply(named(), []string{"/nowhere"}); err != nil {
		t.Errorf("without a device: %v", err)
	}
	card := filepath.Join(dir, "card.json")
	if err := os.Chmod(card, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Apply(named("example.com/card=a"), []string{dir}); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a world-writable specification: %v", err)
	}
	if err := os.Chmod(card, 0o600); err != nil {
		t.Fatal(err)
	}
	// The specifications are read on each call, and errors name a damaged one.
	if err := os.WriteFile(filepath.Join(dir, "card.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Apply(named("example.com/card=a"), []string{dir}); err == nil || !strings.Contains(err.Error(), "card.json") {
		t.Errorf("a damaged specification: %v", err)
	}
}
