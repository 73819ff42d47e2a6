package sandbox

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// reply sends a hostile agent's answer.
func reply(conn net.Conn, body string) {
	agentv1.WriteFrame(conn, agentv1.Reply{Body: json.RawMessage(body)}, agentv1.MaxReply)
}

// TestHostileOutput: a hostile guest harms only its own pod. The sandbox stays usable and can be stopped, and the
// guest's values are corrected.
func TestHostileOutput(t *testing.T) {
	t.Parallel()
	chunk := func(conn net.Conn, n uint32, data string) {
		var head [4]byte
		binary.BigEndian.PutUint32(head[:], n)
		conn.Write(append(head[:], data...))
	}
	for name, raw := range map[string]func(net.Conn){
		"offset behind":    func(c net.Conn) { reply(c, `{"offset":-5}`) },
		"offset far ahead": func(c net.Conn) { reply(c, `{"offset":9223372036854775807}`); chunk(c, 4, "data"); chunk(c, 0, "") },
		"huge chunk":       func(c net.Conn) { reply(c, `{"offset":0}`); chunk(c, math.MaxUint32, "data") },
		"chunk over the limit": func(c net.Conn) {
			reply(c, `{"offset":0}`)
			chunk(c, agentv1.MaxChunk+1, strings.Repeat("x", agentv1.MaxChunk+1))
		},
		"cut chunk":  func(c net.Conn) { reply(c, `{"offset":0}`); chunk(c, 100, "data") },
		"garbage":    func(c net.Conn) { c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) },
		"wrong type": func(c net.Conn) { reply(c, `"offset"`) },
		"nothing":    func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := running(t)
			h.agent.answer(agentv1.OpOutput, raw)
			p := h.started("c")
			for h.agent.count(agentv1.OpOutput) < 2 {
				if h.ctx.Err() != nil {
					t.Fatal("the output was not requested")
				}
			}
			info, err := os.Stat(h.logPath("c"))
			h.must(err)
			if info.Size() > 2*agentv1.MaxChunk*8 {
				t.Errorf("a log of %d bytes", info.Size())
			}
			if _, err := h.box.Stats(h.ctx); err != nil {
				t.Errorf("another call: %v", err)
			}
			_ = p
			h.must(h.box.Stop(h.ctx))
		})
	}
}

func TestHostileReplies(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.started("c")
	set := func(op agentv1.Op, body string) {
		h.agent.answer(op, func(c net.Conn) { reply(c, body) })
	}
	set(agentv1.OpStats, `{"cpuUsec":-1}`)
	if _, err := h.box.ContainerStats(h.ctx, "c"); err == nil {
		t.Error("negative statistics were accepted")
	}
	set(agentv1.OpReadFile, `{"data":"`+strings.Repeat("QUFB", 1000)+`"}`)
	if data, err := h.box.ReadFile(h.ctx, "c", "/x", 16); err != nil || len(data) != 16 {
		t.Errorf("%d bytes, want at most 16: %v", len(data), err)
	}
	set(agentv1.OpPids, `{"pids":"all"}`)
	if _, err := h.box.Pids(h.ctx, "c"); err == nil {
		t.Error("an invalid list was accepted")
	}
	h.agent.answer(agentv1.OpMemory, func(c net.Conn) {
		odd := &agentv1.Error{Class: "no-such-class", Message: strings.Repeat("\x1b[31m", 1<<15)}
		agentv1.WriteFrame(c, agentv1.Reply{Error: odd}, agentv1.MaxReply)
	})
	if _, err := h.box.Stats(h.ctx); err == nil || len(err.Error()) > 64<<10 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	// The exit of another process does not count for this one.
	h.must(h.box.CreateContainer(h.ctx, h.container("other")))
	p.finish(exited(4))
	if got := h.wait(Process{Container: "c"}); got.Code != 4 {
		t.Errorf("exit %+v", got)
	}
	if st, err := h.box.ProcessStatus(Process{Container: "other"}); err != nil || st.State != Ready {
		t.Errorf("other container %+v, %v", st, err)
	}
}

// TestHostileList: a List with unknown or duplicate processes adds none.
func TestHostileList(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	h.crash()
	h.agent.answer(agentv1.OpList, func(c net.Conn) {
		reply(c, `{"processes":[{"container":"../../etc","pid":-1},{"container":"c","pid":1},
			{"container":"c","exec":"x","pid":2},{"container":"c","pid":1}]}`)
	})
	h.must(h.restore(h.logFiles("c")))
	if st := h.box.Status(); len(st.Processes) != 1 || st.Processes[0].State != Running {
		t.Errorf("processes %+v", st.Processes)
	}
}

// TestGuestThatBreaksTheChannel: the VM of a guest that breaks its channel too often is killed.
func TestGuestThatBreaksTheChannel(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	for h.ctx.Err() == nil && h.box.Status().State == Running {
		h.vm().cut() // finds no session to end while the pumps pause
		_, _ = h.box.Stats(h.ctx)
	}
	reason, err := h.box.WaitStopped(h.ctx)
	h.must(err)
	if reason != ReasonVMKilled || !strings.Contains(h.box.Status().ExitReason, "again and again") {
		t.Errorf("exit reason %q", h.box.Status().ExitReason)
	}
}

// TestHostileExecs: a guest that refuses to delete execs cannot fill the shim's memory.
func TestHostileExecs(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	var err error
	made := 0
	for ; err == nil && made <= maxProcesses; made++ {
		id := Process{Container: "c", Exec: "e" + strconv.Itoa(made)}
		err = h.box.CreateExec(h.ctx, ExecConfig{Process: id, Spec: []byte(`{}`), Stdio: containerv1.Discard{}})
	}
	if !errors.Is(err, errdefs.ErrResourceExhausted) || made != maxProcesses {
		t.Errorf("%d processes: %v", made, err)
	}
	if _, err := h.box.DeleteProcess(h.ctx, Process{Container: "c", Exec: "e0"}); err != nil {
		t.Fatal(err)
	}
	last := ExecConfig{Process: Process{Container: "c", Exec: "last"}, Spec: []byte(`{}`), Stdio: containerv1.Discard{}}
	if err := h.box.CreateExec(h.ctx, last); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
}
