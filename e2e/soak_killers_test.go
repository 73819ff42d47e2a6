package e2e

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// slowest bounds the factor by which pauses between kills grow on a busy host. Without a bound, a soak with enough
// pods would hardly kill.
const slowest = 3

// killer kills or spoils something every other second on an idle host, with longer pauses for slow operations.
func (s *soak) killer(ctx context.Context) {
	rnd := s.random(1 << 32)
	for n := 1; ; n++ {
		pause := time.Duration(500+rnd.IntN(3000)) * time.Millisecond
		if n%4 == 0 {
			pause += 8 * time.Second
		}
		select {
		case <-time.After(min(testdeadline.For(pause), slowest*pause)):
		case <-ctx.Done():
			return
		}
		s.strikeOnce(rnd)
	}
}

// strikeOnce kills a process or spoils a template.
func (s *soak) strikeOnce(rnd *rand.Rand) {
	is := func(p process) bool { return p.is("engine") }
	what := "engine"
	switch n := rnd.IntN(20); {
	case n < 6:
	case n < 12:
		what, is = "shim", func(p process) bool { return p.shim() != "" }
	case n < 16:
		what, is = "share", func(p process) bool { return p.is("share") }
	case n < 17:
		what, is = "qemu", func(p process) bool { return p.qemu() != "" && !p.warm() }
	case n < 19:
		what, is = "parent", func(p process) bool { return p.warm() }
	default:
		s.disturb("template")
		s.spoil(rnd)
		return
	}
	var found []process
	for _, p := range s.processes() {
		if is(p) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return
	}
	p := found[rnd.IntN(len(found))]
	s.disturb(what)
	if err := kill(p.pid); err != nil {
		s.t.Errorf("kill %v: %v", p, err)
	}
	s.disturb(what) // it may have taken its time
}

// spoil removes a template, or replaces one of its files.
func (s *soak) spoil(rnd *rand.Rand) {
	found, _ := filepath.Glob(filepath.Join(s.roots().Templates(), "[^.]*", "*"))
	if len(found) == 0 {
		return
	}
	path := found[rnd.IntN(len(found))]
	if rnd.IntN(2) == 0 {
		_ = os.RemoveAll(filepath.Dir(path))
		return
	}
	// Another file, because this one has several names.
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	junk := make([]byte, min(info.Size(), 1<<20))
	for i := range junk {
		junk[i] = byte(rnd.Uint32())
	}
	if strings.HasSuffix(path, ".json") {
		junk = junk[:len(junk)/2]
	}
	if os.WriteFile(path+".spoilt", junk, info.Mode().Perm()) == nil {
		_ = os.Rename(path+".spoilt", path)
	}
}
