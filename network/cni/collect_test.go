package cni

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// collects is the part of a plugin that handles the verb GC, and writes its input to a file.
const collects = `cd /; case $CNI_COMMAND in
ADD) nsenter --net=$CNI_NETNS sh -c 'ip link add eth0 type veth peer name other && ip addr add 10.1.2.3/24 dev eth0'
	echo '{"cniVersion": "1.1.0"}';;
DEL) echo $CNI_CONTAINERID >>FILE.deleted;;
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}';;
GC) cat >FILE;;
esac`

// collector returns a node with a plugin that collects; told is the file with its last input.
func collector(t *testing.T, version string) (n *node, record string) {
	t.Helper()
	n, record = newNode(t), filepath.Join(t.TempDir(), "told")
	n.script(t, strings.ReplaceAll(collects, "FILE", record))
	text := `{"cniVersion": "` + version + `", "name": "scripted", "plugins": [{"type": "scripted"}]}`
	if err := os.WriteFile(filepath.Join(n.conf, "05-scripted.conflist"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return n, record
}

// TestCollect: a delete releases attachments with a record but no pod. The plugins release the others; they get the
// list of attachments to keep.
func TestCollect(t *testing.T) {
	n, record := collector(t, "1.1.0")
	stays, goes := request(), request()
	if _, err := n.add(t, stays); err != nil {
		t.Fatal(err)
	}
	if _, err := n.add(t, goes); err != nil {
		t.Fatal(err)
	}
	if len(n.adding) > 0 {
		t.Errorf("%d plugins are listed as running", len(n.adding))
	}
	if err := n.Collect(t.Context(), func(id string) bool { return id == stays.ID }); err != nil {
		t.Fatal(err)
	}
	if deleted, err := os.ReadFile(record + ".deleted"); err != nil || string(deleted) != goes.ID+"\n" {
		t.Errorf("deleted: %s, %v", deleted, err)
	}
	var got struct {
		Valid []struct{ ContainerID, IfName string } `json:"cni.dev/valid-attachments"`
	}
	data, err := os.ReadFile(record)
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil || len(got.Valid) != 1 || got.Valid[0].ContainerID != stays.ID || got.Valid[0].IfName != "eth0" {
		t.Errorf("the plugin got %s, %v", data, err)
	}
	if err := n.Detach(t.Context(), stays.ID); err != nil {
		t.Error(err)
	}
	n.nothingLeft(t)
}

// TestCollectOld: plugins of an older version are not asked.
func TestCollectOld(t *testing.T) {
	n, record := collector(t, "1.0.0")
	if err := n.Collect(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("asked: %v", err)
	}
}

// TestCollectFails: a failure is an error. Without a configuration there is no plugin to ask, and no error.
func TestCollectFails(t *testing.T) {
	n, _ := collector(t, "1.1.0")
	n.script(t, `[ $CNI_COMMAND = GC ] && { echo '{"code": 7, "msg": "no list"}'; exit 1; }
		echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}'`)
	text := `{"cniVersion": "1.1.0", "name": "scripted", "plugins": [{"type": "scripted"}]}`
	file := filepath.Join(n.conf, "05-scripted.conflist")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Collect(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no list") {
		t.Errorf("the plugin's error: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := n.Collect(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestCollectWaits: while plugins work on a pod, nothing is collected.
func TestCollectWaits(t *testing.T) {
	hang(t, func(n *node) {
		if err := n.Collect(t.Context(), func(string) bool { return true }); !errors.Is(err, errdefs.ErrUnavailable) {
			t.Errorf("collected beside a plugin: %v", err)
		}
	})
}

// TestRoutes: routes without a gateway come first, and each kind keeps the kernel's order.
func TestRoutes(t *testing.T) {
	n := newNode(t)
	n.script(t, `cd /; [ $CNI_COMMAND = ADD ] || exit 0
nsenter --net=$CNI_NETNS sh -c 'ip link add eth0 type veth peer name other && ip addr add 10.1.2.3/32 dev eth0 && ip link set eth0 up
	ip link set other up; ip route add 169.254.1.1 dev eth0; ip route add default via 169.254.1.1
	ip route add 9.9.9.0/24 via 169.254.1.1; ip route add 11.0.0.0/8 dev eth0'
echo '{"cniVersion": "1.0.0"}'`)
	r := request()
	a, err := n.add(t, r)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, route := range a.Guest.Routes {
		got = append(got, route.Destination+" "+route.Gateway)
	}
	want := []string{"11.0.0.0/8 ", "169.254.1.1/32 ", "0.0.0.0/0 169.254.1.1", "9.9.9.0/24 169.254.1.1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if err := n.Detach(t.Context(), r.ID); err != nil {
		t.Error(err)
	}
}
