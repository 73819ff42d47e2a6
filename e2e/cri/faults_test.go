package cri

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
)

// killedVM: the end of a VM is reported within a second, with its reason.
func killedVM(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("victim")
	pod := n.podOf(ctx, t, config)
	container := n.sleeper(ctx, t, pod, "c", config, nil)
	facts := func() (f struct {
		VMPID int    `json:"vmPID"`
		Exit  string `json:"exit"`
	}) {
		t.Helper()
		res, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod, Verbose: true})
		if err == nil {
			err = json.Unmarshal([]byte(res.GetInfo()["facts"]), &f)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if err := unix.Kill(facts().VMPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for {
		res, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod})
		if err != nil {
			t.Fatal(err)
		}
		if res.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			break
		}
		pause(ctx, t)
	}
	if took := time.Since(killed); took > testdeadline.For(time.Second) {
		t.Errorf("the pod's end was reported after %v", took)
	}
	if st := n.ended(ctx, t, container); st.GetExitCode() == 0 || st.GetReason() != "VMKilled" || st.GetMessage() == "" {
		t.Errorf("the container has ended with %v", st)
	}
	if f := facts(); !strings.Contains(f.Exit, "killed") && f.Exit == "" {
		t.Errorf("the pod has ended with %q", f.Exit)
	}
	_, err := n.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: []string{"true"}})
	expect(t, "a command in a VM that is dead", err, codes.FailedPrecondition)
}

// faulty adds a network with a last plugin that behaves as the file mode says: fail, hang or fail-del.
func (n *node) faulty(t *testing.T) (mode string) {
	t.Helper()
	cni := n.o.Engine.CNI
	bin := t.TempDir()
	mode = filepath.Join(bin, "mode")
	script := `#!/bin/sh
in=$(cat)
case $CNI_COMMAND-$(cat ` + mode + ` 2>/dev/null) in
ADD-fail) echo '{"cniVersion": "1.0.0", "code": 11, "msg": "no room today"}'; exit 1;;
ADD-hang) while [ -e ` + mode + ` ]; do sleep 0.05; done;;
DEL-fail-del) echo '{"cniVersion": "1.0.0", "code": 11, "msg": "cannot let go"}'; exit 1;;
esac
[ $CNI_COMMAND = ADD ] && echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "'$CNI_NETNS'"}]}'
exit 0`
	if err := os.WriteFile(filepath.Join(bin, "faulty"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cni.Conf, "10-bridge.conflist")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := strings.LastIndex(string(text), "]}")
	text = []byte(string(text[:last]) + `, {"type": "faulty"}]}`)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cni.Bin = []string{bin, testnet.Plugins}
	return mode
}

// TestFaultyNetwork: the calls' errors report a plugin that fails, hangs, or fails to release. After the retry nothing
// is left.
func TestFaultyNetwork(t *testing.T) {
	n := newNode(t, enginetest.Forks)
	mode := n.faulty(t)
	n.serve(t)
	ctx := testdeadline.Context(t, 2*time.Minute)
	set := func(word string) {
		t.Helper()
		err := os.Remove(mode)
		if word != "" {
			err = os.WriteFile(mode, []byte(word), 0o600)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	config := critest.Pod("p")
	set("fail")
	_, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "no room today") {
		t.Errorf("a plugin that fails: %v", err)
	}
	n.nothingLeft(t)
	if res, err := n.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); err != nil || len(res.GetItems()) > 0 {
		t.Errorf("pods after a failed start: %v, %v", res, err)
	}

	set("hang")
	hasty, cancel := context.WithTimeout(ctx, time.Second)
	_, err = n.RunPodSandbox(hasty, &runtimeapi.RunPodSandboxRequest{Config: config})
	cancel()
	expect(t, "a plugin that hangs", err, codes.DeadlineExceeded)
	set("")
	pod := n.Run(ctx, t, config) // joins the first start

	set("fail-del")
	_, err = n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod})
	if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "cannot let go") {
		t.Errorf("a plugin that does not release: %v", err)
	}
	_, err = n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod})
	if err == nil || len(testnet.Leases(t, n.data)) == 0 {
		t.Errorf("a pod was removed although its address was not released: %v", err)
	}
	set("")
	n.Remove(ctx, t, pod)
	n.nothingLeft(t)
}

// TestStatus: the status that a node's client sees before the first pod, and why pods have no network.
func TestStatus(t *testing.T) {
	n := newNode(t, enginetest.Clones)
	n.serve(t)
	ctx := testdeadline.Context(t, 30*time.Second)
	v, err := n.Version(ctx, &runtimeapi.VersionRequest{Version: "v1"})
	if err != nil || v.GetRuntimeName() != "bulkhead" || v.GetRuntimeApiVersion() != "v1" || v.GetRuntimeVersion() == "" {
		t.Errorf("version %v, %v", v, err)
	}
	c, err := n.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if err != nil || c.GetLinux() == nil {
		t.Errorf("configuration %v, %v", c, err)
	}
	conditions := func() (network *runtimeapi.RuntimeCondition) {
		t.Helper()
		res, err := n.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
		if err != nil || res.GetInfo()["config"] == "" {
			t.Fatal(res, err)
		}
		var names []string
		for _, h := range res.GetRuntimeHandlers() {
			names = append(names, h.GetName())
			if h.GetFeatures().GetUserNamespaces() {
				t.Errorf("handler %q has user namespaces", h.GetName())
			}
		}
		if strings.Join(names, ",") != ",bulkhead,bulkhead-cold" {
			t.Errorf("handlers %q", names)
		}
		for _, c := range res.GetStatus().GetConditions() {
			switch {
			case c.GetType() == runtimeapi.NetworkReady:
				network = c
			case !c.GetStatus():
				t.Errorf("condition %v", c)
			}
		}
		return network
	}
	if c := conditions(); !c.GetStatus() {
		t.Errorf("the network is not ready: %v", c)
	}
	conf := filepath.Join(n.o.Engine.CNI.Conf, "10-bridge.conflist")
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, text, word string }{
		{"none", "", "no network configuration"},
		{"damaged", "{", "10-bridge.conflist"},
		{"a missing plugin", strings.ReplaceAll(string(text), `"portmap"`, `"nosuch"`), "nosuch"},
	} {
		err := os.Remove(conf)
		if tt.text != "" {
			err = os.WriteFile(conf, []byte(tt.text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		c := conditions()
		if c.GetStatus() || c.GetReason() != "NetworkPluginNotReady" || !strings.Contains(c.GetMessage(), tt.word) {
			t.Errorf("%s: %v", tt.name, c)
		}
		_, err = n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: critest.Pod("p")})
		if status.Code(err) == codes.OK || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: a pod: %v", tt.name, err)
		}
	}
	if err := os.WriteFile(conf, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if c := conditions(); !c.GetStatus() {
		t.Errorf("the network is not ready again: %v", c)
	}
	_, err = n.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: "none"})
	expect(t, "a checkpoint", err, codes.Unimplemented)
}
