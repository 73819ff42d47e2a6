package cri

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	door "github.com/bulkhead-project/bulkhead/door/cri"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestCollect: a starting server asks the node's plugins to release resources without a pod, and detaches pods that no
// longer exist.
func TestCollect(t *testing.T) {
	n := newNode(t, enginetest.Clones)
	bin, recordFile := t.TempDir(), filepath.Join(t.TempDir(), "told")
	conf := `{"cniVersion": "1.1.0", "name": "own", "plugins": [{"type": "collects"}]}`
	script := `#!/bin/sh
in=$(cat)
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}';;
DEL) echo $CNI_CONTAINERID >>` + recordFile + `.deleted;;
GC) echo "$in" >` + recordFile + `.new; mv ` + recordFile + `.new ` + recordFile + `;;
esac`
	left := strings.Repeat("ab", 32)
	record, err := json.Marshal(map[string]any{"list": []byte(conf), "args": [][2]string{}})
	if err != nil {
		t.Fatal(err)
	}
	records := filepath.Join(n.o.Roots.Data, "cni", door.Instance)
	if err := os.MkdirAll(records, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		filepath.Join(n.o.Engine.CNI.Conf, "00-own.conflist"): conf,
		filepath.Join(bin, "collects"):                        script,
		filepath.Join(records, left+".json"):                  string(record),
	} {
		if err := os.WriteFile(name, []byte(data), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n.o.Engine.CNI.Bin = []string{bin}
	n.serve(t)
	ctx := testdeadline.Context(t, 30*time.Second)
	for {
		data, err := os.ReadFile(recordFile)
		if err == nil {
			if !strings.Contains(string(data), `"cni.dev/valid-attachments":[]`) {
				t.Errorf("the plugin's input is %s", data)
			}
			break
		}
		if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		pause(ctx, t)
	}
	if deleted, err := os.ReadFile(recordFile + ".deleted"); err != nil || string(deleted) != left+"\n" {
		t.Errorf("deleted %s, %v", deleted, err)
	}
	n.nothingLeft(t)
}
