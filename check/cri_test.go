package check

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// TestJudgeCRI checks that each failure of a node has a remedy.
func TestJudgeCRI(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	node := &CRI{CNIConf: "/c", CNIBin: []string{"/b", "/d"}}
	all := hostcgroup.Support{Version: 2, Controllers: []string{"memory", "cpu", "pids"}}
	for _, tc := range []struct {
		name           string
		got            Finding
		status         Status
		reason, remedy string
	}{
		{name: "root", got: judgeRoot(0), status: OK, reason: "its own user"},
		{name: "a user", got: judgeRoot(1000), status: Fail, reason: "user 1000", remedy: "systemctl"},

		{name: "cgroups", got: judgePodCgroups(all, "/kubepods"), status: OK, reason: "/kubepods"},
		{name: "no kubelet yet", got: judgePodCgroups(all, ""), status: OK, reason: "do not exist yet"},
		{
			name:   "no memory controller",
			got:    judgePodCgroups(hostcgroup.Support{Version: 1, Controllers: []string{"cpu"}, Missing: "broken"}, ""),
			status: Fail, reason: "with memory for pods: the kubelet's limits would not hold (broken)", remedy: "cgroup_disable",
		},
		{
			name: "no cgroups", got: judgePodCgroups(hostcgroup.Support{Missing: "broken"}, "/kubepods"),
			status: Fail, reason: "memory and cpu", remedy: "as root",
		},

		{name: "kubelet root", got: judgeKubelet("/k", nil, true), status: OK, reason: "below /k"},
		{
			name: "no kubelet root", got: judgeKubelet("/k", os.ErrNotExist, false),
			status: Warn, reason: "/k does not exist yet", remedy: "kubelet-root",
		},
		{name: "kubelet's file", got: judgeKubelet("/k", nil, false), status: Fail, reason: "/k is not a directory", remedy: "kubelet-root"},
		{name: "kubelet root unknown", got: judgeKubelet("/k", broken, false), status: Fail, reason: "broken", remedy: "kubelet-root"},

		{name: "socket", got: judgeSocket(endpoint{path: "/s"}), status: OK, reason: "not served yet"},
		{name: "served", got: judgeSocket(endpoint{path: "/s", served: true, err: broken}), status: OK, reason: "served: /s"},
		{name: "no socket", got: judgeSocket(endpoint{path: "/s", other: true}), status: Fail, reason: "is not a socket", remedy: "remove it"},
		{name: "not to be written", got: judgeSocket(endpoint{path: "/s", err: broken}), status: Fail, reason: "broken", remedy: "as root"},
		{name: "a long path", got: judgeSocket(endpoint{path: strings.Repeat("s", 108)}), status: Fail, reason: "108", remedy: "listen"},

		{name: "CNI", got: judgePlugins(node, nil), status: OK, reason: "/c, in /b or /d"},
		{
			name: "no CNI", got: judgePlugins(node, broken),
			status: Fail, reason: "broken", remedy: "into /c, its programs into /b or /d; or set network",
		},
		{name: "taps", got: judgeTaps(nil), status: OK, reason: "card"},
		{name: "no taps", got: judgeTaps(broken), status: Fail, reason: "broken", remedy: "modprobe tun"},
		{name: "tc", got: judgeTC(nil), status: OK, reason: "u32"},
		{name: "no tc", got: judgeTC(broken), status: Fail, reason: "broken", remedy: "modprobe sch_ingress cls_u32 act_mirred"},
		{name: "tc untried", got: judgeTC(errUntried), status: Warn, reason: "not tried"},
	} {
		if tc.got.Status != tc.status || !strings.Contains(tc.got.Reason, tc.reason) || !strings.Contains(tc.got.Remedy, tc.remedy) ||
			tc.remedy == "" && tc.got.Remedy != "" || strings.Contains(tc.got.Reason+tc.got.Remedy, "\n") {
			t.Errorf("%s: %+v, want %s with %q and %q", tc.name, tc.got, tc.status, tc.reason, tc.remedy)
		}
	}
}

// TestCRIProbes checks that the probes depend on the network of pods.
func TestCRIProbes(t *testing.T) {
	t.Parallel()
	asked := func(c *CRI) (names []string) {
		for _, p := range Probes(Options{CRI: c}) {
			names = append(names, p.Name)
		}
		return names
	}
	for _, tc := range []struct {
		name      string
		cri       *CRI
		with, not []string
	}{
		{"no node", nil, []string{"QEMU", "network"}, []string{"root", "socket", "CNI"}},
		{
			"CNI", &CRI{CNIConf: "/c", Socket: "/s", Kubelet: "/k"},
			[]string{"QEMU", "root", "pods' cgroups", "kubelet root", "socket", "CNI", "taps", "tc"}, []string{"pasta", "network"},
		},
		{
			"no kubelet", &CRI{CNIConf: "/c"},
			[]string{"root", "pods' cgroups", "CNI", "taps", "tc"}, []string{"kubelet root", "socket"},
		},
		{"user", &CRI{Socket: "/s", Kubelet: "/k"}, []string{"QEMU", "root", "socket", "pasta", "network"}, []string{"CNI", "tc"}},
	} {
		names := asked(tc.cri)
		for _, name := range tc.with {
			if !slices.Contains(names, name) {
				t.Errorf("%s: %s is not asked", tc.name, name)
			}
		}
		for _, name := range tc.not {
			if slices.Contains(names, name) {
				t.Errorf("%s: %s is asked", tc.name, name)
			}
		}
	}
}

// TestNode checks a node with and without its parts.
func TestNode(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "bn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"kubelet", "conf", "bin"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"conf/1.conflist": `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "plug"}]}`, "file": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := &CRI{
		Socket: filepath.Join(dir, "s"), Kubelet: filepath.Join(dir, "kubelet"),
		CNIConf: filepath.Join(dir, "conf"), CNIBin: []string{filepath.Join(dir, "bin")},
	}
	m := &host{options: Options{CRI: c, Roots: dirs.Roots{Data: filepath.Join(dir, "d")}}}
	if f := m.socket(t.Context()); f.Status != OK || !strings.HasPrefix(f.Reason, "served") {
		t.Errorf("served: %+v", f)
	}
	if f := m.plugins(t.Context()); f.Status != Fail || !strings.Contains(f.Reason, "plug") {
		t.Errorf("no plugin: %+v", f)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/plug"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if f := m.plugins(t.Context()); f.Status != OK {
		t.Errorf("a plugin: %+v", f)
	}
	c.CNIConf = filepath.Join(dir, "bin")
	if f := m.plugins(t.Context()); f.Status != Fail || !strings.Contains(f.Reason, "no network configuration") {
		t.Errorf("no configuration: %+v", f)
	}
	for path, status := range map[string]Status{"new/socket": OK, "file": Fail} {
		c.Socket = filepath.Join(dir, path)
		if f := m.socket(t.Context()); f.Status != status {
			t.Errorf("%s: %+v", path, f)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "d")); err == nil {
		t.Error("something is left")
	}
}
