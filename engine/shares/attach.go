package shares

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/internal/printable"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/share"
	"github.com/bulkhead-project/bulkhead/share/attach"
)

// othersPatience is the time to open directories that no container is waiting for.
const othersPatience = 3 * time.Second

// attach passes missing directories to a server: the asked ones, or all if asked is nil. Each asked directory must
// exist. Of all directories, attach skips those that are gone or do not answer in time.
func (s *Set) attach(ctx context.Context, server procid.ID, asked []store.Share) error {
	var missing []store.Share
	wanted := map[string]bool{}
	for _, one := range asked {
		wanted[Name(one)] = true
	}
	s.mu.Lock()
	users := s.users
	if s.server != server {
		s.server = server
		clear(s.placed)
	}
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		if one := s.all[name]; !s.placed[name] && (asked == nil || wanted[name]) {
			missing = append(missing, one)
		}
	}
	s.mu.Unlock()
	opened, err := s.openAll(ctx, missing, asked != nil)
	defer func() {
		for _, p := range opened {
			p.Close()
		}
	}()
	if err != nil || len(opened) == 0 {
		return err
	}
	if err := s.host.attach(ctx, server, users, opened); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range opened {
		s.placed[Name(one)] = s.server == server
		delete(s.warned, Name(one))
	}
	return nil
}

// rest retries the server's missing directories with growing pauses, until it has all of them or ends.
func (s *Set) rest(ctx context.Context) {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	pauses := retry.Pauses{First: firstRest, Last: lastRetry}
	for s.lacks(server) && s.pod.Up() && server.Alive() && retry.Sleep(ctx, pauses.Next(), nil) {
		call, cancel := context.WithTimeout(ctx, serveTimeout)
		if err := s.attach(call, server, nil); err != nil {
			s.host.Logger.Debug("serve the rest of the host's directories", "error", err)
		}
		cancel()
	}
}

// firstRest is the first pause of rest.
const firstRest = time.Second

// lacks reports whether server is the current one and lacks directories.
func (s *Set) lacks(server procid.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != server {
		return false
	}
	for name := range s.all {
		if !s.placed[name] {
			return true
		}
	}
	return false
}

// openAll opens directories again by their paths. The paths must contain no links, because the owner of a parent
// directory could place one. If must is false, openAll returns the directories that it opened in time.
func (s *Set) openAll(ctx context.Context, all []store.Share, must bool) (map[store.Share]*place.Place, error) {
	if !must {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, othersPatience, place.ErrSilent)
		defer cancel()
	}
	var (
		mu     sync.Mutex
		opened = map[store.Share]*place.Place{}
		failed error
		wg     sync.WaitGroup
	)
	for _, one := range all {
		wg.Go(func() {
			p, err := s.host.reopen(ctx, one)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				opened[one] = p
			case must:
				failed = err
			default:
				s.missing(one, err)
			}
		})
	}
	wg.Wait()
	return opened, failed
}

// missing logs that a directory cannot be opened, as a warning only once.
func (s *Set) missing(one store.Share, err error) {
	s.mu.Lock()
	level := slog.LevelWarn
	if s.warned[Name(one)] {
		level = slog.LevelDebug
	}
	s.warned[Name(one)] = true
	s.mu.Unlock()
	s.host.Logger.Log(context.Background(), level, "a directory of the host cannot be served any more", "error", err)
}

// attach runs a helper that puts directories into a server's namespace, which is for users.
func (h Host) attach(ctx context.Context, server procid.ID, users userns.Mappings, opened map[store.Share]*place.Place) (err error) {
	at := "/proc/" + strconv.Itoa(server.PID) + "/ns/"
	mounts, err := os.Open(at + "mnt")
	if err != nil {
		return fmt.Errorf("find the server's mounts: %w", err)
	}
	defer mounts.Close()
	if !server.Alive() { // the descriptor may belong to another process
		return procid.ErrGone
	}
	const first = 3
	cmd := exec.Command(h.Program, share.Attach)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{"GOTRACEBACK=none"}, []*os.File{mounts}
	r := attach.Request{Namespace: first, Unshare: os.Geteuid() != 0}
	if users != (userns.Mappings{}) {
		if r.UID, r.GID, err = users.Root(); err != nil {
			return err
		}
	}
	for one, p := range opened {
		cmd.ExtraFiles = append(cmd.ExtraFiles, p.File)
		r.Trees = append(r.Trees, attach.Tree{
			Name: Name(one), FD: first + len(cmd.ExtraFiles) - 1, Path: p.Path, ReadOnly: one.ReadOnly, Follow: one.Follow, Masks: p.Masks,
			Detached: one.Staging != (store.Staging{}),
		})
	}
	if r.Unshare {
		// A process with threads, such as a Go program, cannot join a user namespace.
		nsenter, err := exec.LookPath("nsenter")
		if err != nil {
			return err
		}
		cmd.Args = append([]string{nsenter, "--user=" + at + "user", "--preserve-credentials", "--", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = nsenter
	}
	request, err := json.Marshal(r)
	if err != nil {
		return err
	}
	cmd.Stdin = bytes.NewReader(request)
	return run(ctx, cmd, slices.Collect(maps.Keys(opened)))
}

// run runs a helper to its end, or kills it. A helper that waits for a hanging file system cannot be killed; it
// ends when it can.
func run(ctx context.Context, cmd *exec.Cmd, what []store.Share) error {
	var said bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &said, time.Second // for nsenter's child, which has its pipes
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			err = fmt.Errorf("%w: %s", err, printable.Text(strings.TrimSpace(said.String())))
		}
		return err
	case <-ctx.Done():
	}
	_ = cmd.Process.Kill()
	paths := make([]string, 0, len(what))
	for _, one := range what {
		paths = append(paths, one.Path)
	}
	return failure.Wrap(ctx.Err(), "attach %.400q", paths)
}
