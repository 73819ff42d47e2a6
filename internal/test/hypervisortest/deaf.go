package hypervisortest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu/qmp"
)

// SaveDeaf does the same as VM.Save of QEMU, but does not wait until all connections are closed. If the host is
// connected and has stopped reading, clones of the VM read nothing until their first connection has been closed.
func SaveDeaf(ctx context.Context, t testing.TB, v hypervisor.VM, state *os.File) {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(v.Record().Dir, "mon")})
	if err != nil {
		t.Fatal(err)
	}
	monitor, err := qmp.New(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	events := monitor.Subscribe("MIGRATION")
	defer events.Cancel()
	type capability struct {
		Name  string `json:"capability"`
		State bool   `json:"state"`
	}
	err = errors.Join(
		monitor.Execute(ctx, "stop", nil, nil),
		monitor.Execute(ctx, "migrate-set-capabilities", map[string]any{
			"capabilities": []capability{{"x-ignore-shared", true}, {"events", true}},
		}, nil),
		monitor.ExecuteFile(ctx, "getfd", map[string]any{"fdname": "state"}, nil, state),
		monitor.Execute(ctx, "migrate", map[string]any{"uri": "fd:state"}, nil),
	)
	for done := false; err == nil && !done; {
		var e qmp.Event
		var data struct{ Status string }
		if e, err = events.Next(ctx); err == nil {
			err = json.Unmarshal(e.Data, &data)
		}
		done = data.Status == "completed"
	}
	if err != nil {
		t.Fatal(err)
	}
}
