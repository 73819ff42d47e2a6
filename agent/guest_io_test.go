package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

func testTerminal(t *testing.T, tm *template) {
	g := tm.start(t)
	c := agentv1.Process{Container: "c"}
	g.launch("c", spec("sh", "-c", "test -t 0 && test -t 2 && read line && echo got $line && stty size"), func(c *agentv1.Create) {
		c.Terminal, c.Stdin = true, true
	})
	g.must(g.Resize(g.ctx(), agentv1.Resize{Process: c, Width: 91, Height: 33}))
	in, err := g.Input(g.ctx(), agentv1.Input{Process: c})
	g.must(err)
	in.Write([]byte("hi\n"))
	if got := g.read(c, "stdout"); !strings.Contains(got, "got hi\r\n33 91\r\n") {
		t.Errorf("terminal: %q", got)
	}
	in.Close()
	// The size and the owner are right before anything of the program runs.
	sized := spec("sh", "-c", "stty size; stat -c '%u %a' $(readlink /proc/self/fd/0)")
	sized["process"].(map[string]any)["user"] = map[string]any{"uid": 1000, "gid": 1000}
	sized["process"].(map[string]any)["consoleSize"] = map[string]any{"height": 33, "width": 77}
	g.launch("sized", sized, func(c *agentv1.Create) { c.Terminal = true })
	if got := g.read(agentv1.Process{Container: "sized"}, "stdout"); got != "33 77\r\n1000 620\r\n" {
		t.Errorf("terminal: %q", got)
	}
	if _, err := g.Output(g.ctx(), agentv1.Output{Process: c, Stream: "stderr"}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("stderr of a terminal: %v", err)
	}
	// In an exec; end of input is the terminal's control-D.
	g.launch("d", spec("sleep", "1000"))
	x := agentv1.Process{Container: "d", Exec: "tty"}
	p := process("sh", "-c", "stty size; cat; echo over; exit 4")
	_, err = g.Exec(g.ctx(), agentv1.Exec{Process: x, Spec: raw(t, p), Terminal: true, Stdin: true})
	g.must(err)
	in, err = g.Input(g.ctx(), agentv1.Input{Process: x})
	g.must(err)
	// Input that arrives while stty runs would be lost with the change of the settings.
	g.until(x, "stdout", "\r\n")
	in.Write([]byte("abc\n"))
	g.must(in.CloseInput())
	if got := g.read(x, "stdout"); !strings.Contains(got, "abc\r\nabc\r\nover\r\n") {
		t.Errorf("exec's terminal: %q", got)
	}
	if e := g.exit(x); e.Code != 4 {
		t.Errorf("exit = %+v", e)
	}
	in.Close()
	for i, uid := range []int{1000, 0, 1000} {
		p := process("sh", "-c", "stty size; stat -c '%u %a' $(readlink /proc/self/fd/0); tty=$(readlink /proc/self/fd/0); echo hi > $tty")
		p["user"], p["consoleSize"] = map[string]any{"uid": uid, "gid": 0}, map[string]any{"height": 33, "width": 77}
		x := agentv1.Process{Container: "d", Exec: fmt.Sprint("sized", i)}
		_, err = g.Exec(g.ctx(), agentv1.Exec{Process: x, Spec: raw(t, p), Terminal: true})
		g.must(err)
		if got, want := g.read(x, "stdout"), fmt.Sprintf("33 77\r\n%d 620\r\nhi\r\n", uid); got != want {
			t.Errorf("exec's terminal: %q, want %q", got, want)
		}
	}
}

func testStdin(t *testing.T, tm *template) {
	g := tm.start(t)
	c := agentv1.Process{Container: "c"}
	g.launch("c", spec("sh", "-c", "cat | od -An -c | wc -l; echo done"), func(c *agentv1.Create) { c.Stdin = true })
	data := bytes.Repeat([]byte("0123456789abcdef"), 40000)
	in, err := g.Input(g.ctx(), agentv1.Input{Process: c})
	g.must(err)
	for _, b := range [][]byte{data[:1000], data[1000:400000]} {
		if _, err := in.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	// The host goes away and another takes up where the process is.
	in.Close()
	in, err = g.Input(g.ctx(), agentv1.Input{Process: c})
	g.must(err)
	at := in.Offset()
	if at == 0 || at > 400000 {
		t.Fatalf("offset = %d", at)
	}
	if _, err := in.Write(data[at:]); err != nil {
		t.Fatal(err)
	}
	g.must(in.CloseInput())
	if got := g.read(c, "stdout"); !strings.HasSuffix(got, "done\n") {
		t.Errorf("stdout = %q", got)
	}
	select {
	case <-in.Done():
	case <-time.After(testdeadline.For(10 * time.Second)):
		t.Error("the stream does not end with the input")
	}
	if in.Offset() != int64(len(data)) {
		t.Errorf("offset = %d of %d", in.Offset(), len(data))
	}
	in.Close()
	// Without stdin there is /dev/null.
	n := agentv1.Process{Container: "n"}
	g.launch("n", spec("sh", "-c", "cat; echo eof"))
	if got := g.read(n, "stdout"); got != "eof\n" {
		t.Errorf("stdout = %q", got)
	}
	if _, err := g.Input(g.ctx(), agentv1.Input{Process: n}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("input: %v", err)
	}
	// With StdinOnce the first stream's end is the input's.
	o := agentv1.Process{Container: "once"}
	g.launch("once", spec("cat"), func(c *agentv1.Create) { c.Stdin, c.StdinOnce = true, true })
	in, err = g.Input(g.ctx(), agentv1.Input{Process: o})
	g.must(err)
	in.Write([]byte("word"))
	for in.Offset() < 4 {
		time.Sleep(time.Millisecond)
	}
	in.Close()
	if got := g.read(o, "stdout"); got != "word" {
		t.Errorf("stdout = %q", got)
	}
}

// testNoReader closes outputs, and keeps the stdin of an exec beyond its first stream.
func testNoReader(t *testing.T, tm *template) {
	g := tm.start(t)
	g.launch("c", spec("sleep", "1000"))
	for name, tc := range map[string]struct {
		terminal bool
		stream   string
		script   string
		want     int
	}{
		"stdout":   {false, "stdout", "while :; do echo y; done", 128 + 13},
		"stderr":   {false, "stderr", "while :; do echo y >&2; done", 128 + 13},
		"terminal": {true, "stdout", "exec sleep 1000", 128 + 1},
	} {
		p := agentv1.Process{Container: "c", Exec: name}
		_, err := g.Exec(g.ctx(), agentv1.Exec{Process: p, Spec: raw(t, process("sh", "-c", tc.script)), Terminal: tc.terminal})
		g.must(err)
		for range 2 {
			g.must(g.NoReader(g.ctx(), agentv1.NoReader{Process: p, Stream: tc.stream}))
		}
		if got := g.read(p, tc.stream); got != "" {
			t.Errorf("%s: read %d bytes", name, len(got))
		}
		if e := g.exit(p); e.Code != tc.want {
			t.Errorf("%s: exit = %+v, want code %d", name, e, tc.want)
		}
	}
	unknown := agentv1.NoReader{Process: agentv1.Process{Container: "c"}, Stream: "x"}
	if err := g.NoReader(g.ctx(), unknown); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("an unknown stream: %v", err)
	}
	for _, keep := range []bool{false, true} {
		p := agentv1.Process{Container: "c", Exec: fmt.Sprint("keep-", keep)}
		_, err := g.Exec(g.ctx(), agentv1.Exec{Process: p, Spec: raw(t, process("cat")), Stdin: true, KeepStdin: keep})
		g.must(err)
		for _, text := range []string{"one ", "two"} {
			in, err := g.Input(g.ctx(), agentv1.Input{Process: p})
			g.must(err)
			if _, err = in.Write([]byte(text)); keep {
				g.must(err)
				g.until(p, "stdout", text)
			}
			if text == "two" {
				g.must(in.CloseInput())
			}
			in.Close()
			if !keep {
				break
			}
		}
		if e := g.exit(p); e.Code != 0 {
			t.Errorf("%v: exit = %+v", p, e)
		}
	}
}

func testUsers(t *testing.T, tm *template) {
	g := tm.start(t)
	for i, tc := range []struct {
		user map[string]any
		want string
	}{
		{map[string]any{"username": "demo"}, "uid=1000(demo) gid=1001(demo) groups=1001(demo),2000(extra)\n/home/demo\n"},
		{map[string]any{"username": "1000:2000"}, "uid=1000(demo) gid=2000(extra) groups=2000(extra)\n/home/demo\n"},
		{map[string]any{"username": "4321"}, "uid=4321 gid=0(root) groups=0(root)\n/\n"},
		{map[string]any{"username": "4000:4000"}, "uid=4000 gid=4000 groups=4000\n/\n"}, // not root, as the image has it
		{map[string]any{"uid": 1000, "gid": 5, "additionalGids": []int{7}}, "uid=1000(demo) gid=5 groups=7\n/home/demo\n"},
	} {
		id := string(rune('a' + i))
		s := spec("sh", "-c", "id; echo $HOME; echo err > /dev/stderr")
		s["process"].(map[string]any)["user"] = tc.user
		g.launch(id, s)
		p := agentv1.Process{Container: id}
		if got := g.read(p, "stdout"); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.user, got, tc.want)
		}
		if got := g.read(p, "stderr"); got != "err\n" { // may open its own streams
			t.Errorf("%v: %q", tc.user, got)
		}
	}
	// A user keeps its numbers, whatever the container has written to its /etc/passwd since.
	s := spec("sleep", "1000")
	demo := map[string]any{"username": "demo"}
	s["process"].(map[string]any)["user"] = demo
	g.launch("live", s)
	if out, e := g.exec("live", "edit", process("sh", "-c", "echo demo:x:0:0::/root:/bin/sh > /etc/passwd")); e.Code != 0 {
		t.Errorf("edit: %q, %+v", out, e)
	}
	again := process("id", "-u")
	again["user"] = demo
	if out, _ := g.exec("live", "again", again); out != "1000\n" {
		t.Errorf("uid %q after /etc/passwd has changed", out)
	}
	s = spec("id")
	s["process"].(map[string]any)["user"] = map[string]any{"username": "nobody"}
	if err := g.tryCreate("z", s); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("unknown user: %v", err)
	}
}

func testForward(t *testing.T, tm *template) {
	g := tm.start(t)
	// Answers only when it has read all that there is.
	g.launch("c", spec("nc", "-l", "-p", "8080", "-e", "wc", "-c"))
	conn, err := g.Forward(g.ctx(), 8080)
	for i := 0; err != nil && i < 100; i++ { // until it listens
		time.Sleep(50 * time.Millisecond)
		conn, err = g.Forward(g.ctx(), 8080)
	}
	g.must(err)
	defer conn.Close()
	if _, err := conn.Write(make([]byte, 300000)); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*agentv1.ChunkConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || strings.TrimSpace(string(got)) != "300000" {
		t.Errorf("answer %q, %v", got, err)
	}
	if _, err := g.Forward(g.ctx(), 9); !errors.Is(err, unix.ECONNREFUSED) || !strings.Contains(err.Error(), "port 9") {
		t.Errorf("closed port: %v", err)
	}
}

// testConfined reads files by links that lead out of the container.
func testConfined(t *testing.T, tm *template) {
	g := tm.start(t)
	g.launch("c", spec("sh", "-c", `
		ln -s / /tmp/root
		ln -s ../../../../../../etc/passwd /tmp/up
		ln -s /proc/1/root/etc/passwd /tmp/magic
		mknod /tmp/fifo p
		echo ready
		sleep 1000`))
	c := agentv1.Process{Container: "c"}
	out, err := g.Output(g.ctx(), agentv1.Output{Process: c, Stream: "stdout"})
	g.must(err)
	if _, _, err := out.Next(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	for path, ok := range map[string]bool{
		"/tmp/up": true, "/tmp/root/etc/passwd": true, "/../../etc/passwd": true,
		"/tmp/magic": false, "/tmp/fifo": false, "/dev/zero": false, "/tmp/root/etc/modules.load": false, "/etc": false,
	} {
		f, err := g.ReadFile(g.ctx(), agentv1.ReadFile{Container: "c", Path: path, Limit: 1 << 20})
		if ok != (err == nil) || ok && !strings.HasPrefix(string(f.Data), "root:x:0:0::/root") {
			t.Errorf("%s: %q, %v", path, f.Data, err)
		}
	}
}
