package shares

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/internal/printable"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/share"
)

const socketName = hypervisor.ShareSocket

// start starts a server for all directories that still exist. The caller holds turn.
func (s *Set) start(ctx context.Context) (id procid.ID, err error) {
	if !s.journaled { // once, because the guest controls how often a server ends
		if err := s.pod.Journal(ctx); err != nil {
			return id, err
		}
		s.journaled = true
	}
	dir, name := s.socket()
	conn, err := podsock.Dial(ctx, dir, name)
	if err != nil {
		return id, err
	}
	defer conn.Close()
	port, err := conn.File()
	if err != nil {
		return id, err
	}
	defer port.Close()
	record := s.pod.Record()
	ring, err := s.ringFor(record)
	if err != nil {
		return id, err
	}
	s.mu.Lock()
	users := s.users
	s.mu.Unlock()
	owner := ownerOf(record)
	if _, inner := userns.Inner(); inner || users != (userns.Mappings{}) {
		owner = "0" // the namespace's root
	}
	cmd := exec.Command(s.host.Program, share.Serve, owner, s.host.StateDir)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{"GOTRACEBACK=none"}, []*os.File{port}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	if ring != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, ring) // share.RingFD
	}
	switch {
	case users != (userns.Mappings{}):
		if err := users.Enter(cmd.SysProcAttr); err != nil {
			return id, err
		}
		program, err := os.Open(cmd.Path)
		if err != nil {
			return id, err
		}
		defer program.Close()
		fromOutside(cmd, program)
	case os.Geteuid() != 0:
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	begin, err := cmd.StdinPipe()
	if err != nil {
		return id, err
	}
	defer begin.Close()
	says, err := cmd.StdoutPipe()
	if err != nil {
		return id, err
	}
	defer says.Close()
	run := group.In(&record, nil)
	if run == nil {
		run = (*exec.Cmd).Start
	}
	if err := run(cmd); err != nil {
		return id, fmt.Errorf("start %s: %w", share.Program, err)
	}
	fault.Point("share.spawned")
	defer func() {
		if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	if id, err = procid.Of(cmd.Process.Pid); err != nil {
		return id, err
	}
	// The server starts work when its record exists; without it the server exits by itself.
	if err := s.pod.Serving(id); err != nil {
		return id, err
	}
	fault.Point("share.recorded")
	if _, err := begin.Write([]byte{1}); err != nil {
		return id, fmt.Errorf("start the server: %w", err)
	}
	if err := awaitReady(ctx, says.(*os.File)); err != nil {
		return id, err
	}
	if err := s.attach(ctx, id, nil); err != nil {
		return id, err
	}
	if _, err := begin.Write([]byte{1}); err != nil {
		return id, fmt.Errorf("serve: %w", err)
	}
	return id, nil
}

// fromOutside makes a command run a program of this mount namespace. If it ran the same program in the mount namespace
// that it gets, then that namespace's mounts would live as long as the command: in another user namespace they are locked
// to each other. It also needs no right to the directories of the program's path.
func fromOutside(cmd *exec.Cmd, program *os.File) {
	cmd.Path = fmt.Sprintf("/proc/self/fd/%d", 3+len(cmd.ExtraFiles))
	cmd.ExtraFiles = append(cmd.ExtraFiles, program)
}

// ownerOf returns the user for a pod's server, empty for the engine's own.
func ownerOf(r store.Pod) string {
	if r.Owner == nil {
		return ""
	}
	return strconv.Itoa(r.Owner.UID)
}

// awaitReady waits for a server's first line.
func awaitReady(ctx context.Context, says *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = says.SetReadDeadline(time.Now()) })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(says, 1<<10)).ReadString('\n')
	switch line = strings.TrimSpace(line); {
	case line == share.Ready:
		return nil
	case line != "":
		return errors.New(printable.Text(line))
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("the server does not start: %w", err)
}

// reap reaps a server that was this process's child, and describes its exit. It cannot describe the exit of another
// engine's server.
func reap(id procid.ID) string {
	var status unix.WaitStatus
	switch pid, err := unix.Wait4(id.PID, &status, unix.WNOHANG, nil); {
	case err != nil || pid != id.PID:
		return "unknown: another engine started it"
	case status.Signaled():
		return "signal: " + status.Signal().String()
	default:
		return fmt.Sprintf("exit status %d", status.ExitStatus())
	}
}

// dyingPatience is the time for a killed server to exit.
const dyingPatience = 3 * time.Second

// Kill kills a server and returns when it has exited, or waits in the kernel for a hanging file system. In that case
// it has no effect any more, and exits when the file system answers.
func Kill(ctx context.Context, id procid.ID) error {
	if id.PID == 0 {
		return nil
	}
	if err := id.Signal(unix.SIGKILL); err != nil && !errors.Is(err, procid.ErrGone) {
		return fmt.Errorf("end the server of the host's directories: %w", err)
	}
	soon, cancel := context.WithTimeout(ctx, dyingPatience)
	err := id.Wait(soon)
	cancel()
	if err != nil && !dying(id) {
		err = id.Wait(ctx)
	}
	if err != nil && (ctx.Err() != nil || !dying(id)) {
		return fmt.Errorf("end the server of the host's directories: %w", err)
	}
	reap(id)
	return nil
}

// awaitOrphan waits for the end of a server that an earlier engine was starting when it died. Such a server ends by itself,
// because its stdin ends with the engine. A server that serves has closed its stdin.
func (s *Set) awaitOrphan(ctx context.Context, server procid.ID) {
	s.mu.Lock()
	own := s.watched == server
	s.mu.Unlock()
	if own || !server.Alive() {
		return
	}
	if stdin, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", server.PID)); err != nil || !strings.HasPrefix(stdin, "pipe:") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dyingPatience)
	defer cancel()
	if err := server.Wait(ctx); err != nil { // it got its last order just before the engine's end, and serves
		s.host.Logger.Debug("wait for the end of an unfinished server", "error", err)
	}
}

// dying reports whether a killed process only waits for its exit.
func dying(id procid.ID) bool { return !id.Alive() || id.Dying() }

// Dying reports whether a process is a killed server that waits in the kernel (Kill).
func Dying(pid int) bool {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil || strings.TrimSpace(string(name)) != share.Program {
		return false
	}
	id, err := procid.Of(pid)
	return err != nil || dying(id)
}
