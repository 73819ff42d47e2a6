package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// soakClients is the number of clients besides the killer.
const soakClients = 3

// mostSoaked is the maximum number of pods of one client.
const mostSoaked = 2

// soaker is one client. It uses its own pods.
type soaker struct {
	*soak
	n    int
	rnd  *rand.Rand
	made int
	own  []*soaked
}

// client does one random thing after another.
func (s *soak) client(ctx context.Context, n int) {
	c := &soaker{soak: s, n: n, rnd: s.random(uint64(n))}
	actions := []struct {
		name   string
		weight int
		do     func()
	}{
		{"short", 6, c.short},
		{"begin", 3, c.begin},
		{"exec", 5, func() { c.withOne(c.exec) }},
		{"pause", 2, func() { c.withOne(c.pause) }},
		{"resize", 2, func() { c.withOne(c.resize) }},
		{"restart", 1, func() { c.withOne(c.restart) }},
		{"remove", 2, func() { c.withOne(c.remove) }},
		{"opposite", 2, func() { c.withOne(c.opposite) }},
		{"list", 1, func() { c.expect("ps", c.command("ps", "-o", "json"), "") }},
	}
	sum := 0
	for _, a := range actions {
		sum += a.weight
	}
	for ctx.Err() == nil {
		at := c.rnd.IntN(sum)
		for _, a := range actions {
			if at -= a.weight; at < 0 {
				a.do()
				break
			}
		}
	}
}

// attempt is a command that has ended.
type attempt struct {
	*command
	began time.Time
	code  int
}

func (c *soaker) command(args ...string) attempt {
	began := time.Now()
	cmd := c.run(c.t, "", args...)
	return attempt{cmd, began, cmd.ProcessState.ExitCode()}
}

// expect reports whether a command succeeded. A failure without a disturbance fails the test.
func (c *soaker) expect(action string, a attempt, out string) bool {
	ok := a.code == 0
	c.count(action, !ok)
	switch why := c.disturbed(a.began); {
	case !ok && why == "":
		c.t.Errorf("%s fails without a disturbance: %v", action, a.command)
	case ok && out != "" && a.out.String() != out:
		c.t.Errorf("%s: %.300q, want %.300q (%s)", action, a.out.String(), out, why)
	}
	return ok
}

// short runs a container that writes numbers to both streams, so that each byte has a known place.
func (c *soaker) short() {
	first, sizes := c.rnd.IntN(1000), [2]int{c.size(), c.size()}
	script := fmt.Sprintf("seq %d 99999999 | head -c %d; seq %d 99999999 | head -c %d >&2", first, sizes[0], first, sizes[1])
	a := c.command("run", "--rm", "-q", image, "sh", "-c", script)
	if !c.expect("short", a, "") {
		return
	}
	for i, got := range []string{a.out.String(), a.err.String()} {
		if want := numbers(first, sizes[i]); got != want {
			c.t.Errorf("stream %d of %d bytes is another from byte %d of %d", i+1, sizes[i], differs(got, want), len(got))
		}
	}
}

// size returns 1 B to 1 MiB. Most are short.
func (c *soaker) size() int { return 1 + c.rnd.IntN(1<<c.rnd.IntN(21)) }

func numbers(first, size int) string {
	var b strings.Builder
	for n := first; b.Len() < size; n++ {
		fmt.Fprintln(&b, n)
	}
	return b.String()[:size]
}

func differs(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// begin starts a pod that counts, with a directory of the host.
func (c *soaker) begin() {
	if len(c.own) >= mostSoaked {
		return
	}
	c.made++
	p := &soaked{name: fmt.Sprintf("soak%d-%d", c.n, c.made)}
	yaml := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {terminationGracePeriodSeconds: 1,
  volumes: [{name: shared, hostPath: {path: %q}}],
  containers: [{name: c, image: %q, command: [sh, -c, %q],
    resources: {limits: {memory: 128Mi}}, volumeMounts: [{name: shared, mountPath: /shared}]}]}}`,
		p.name, c.dir, image, counting)
	began := time.Now()
	cmd := c.run(c.t, yaml, "run", "-d", "-q", "-")
	if c.expect("begin", attempt{cmd, began, cmd.ProcessState.ExitCode()}, "") {
		c.own = append(c.own, p)
		c.keep(p)
		return
	}
	c.gone(p.name) // whatever exists of it
}

// withOne does something with one of the client's pods.
func (c *soaker) withOne(do func(p *soaked)) {
	if len(c.own) > 0 {
		do(c.own[c.rnd.IntN(len(c.own))])
	}
}

func (c *soaker) exec(p *soaked) {
	text := fmt.Sprint(c.rnd.Uint64())
	script := fmt.Sprintf("echo %s >/shared/%s && cat /shared/%[2]s", text, p.name)
	c.expect("exec", c.command("exec", p.name, "--", "sh", "-c", script), text+"\n")
}

func (c *soaker) pause(p *soaked) {
	if c.expect("pause", c.command("pause", p.name), "") {
		for !c.expect("resume", c.command("resume", p.name), "") {
			if !c.again("resume", p.name) {
				return
			}
		}
	}
}

// again reports whether a pod exists and can be tried again.
func (c *soaker) again(action, name string) bool {
	time.Sleep(200 * time.Millisecond)
	a := c.command("ps", "-o", "json")
	c.count(action+" again", false)
	return a.code != 0 || strings.Contains(a.out.String(), `"`+name+`"`) && strings.Contains(a.out.String(), "Paused")
}

func (c *soaker) resize(p *soaked) {
	c.expect("resize", c.command("update", p.name, "--memory", fmt.Sprintf("%dMi", 96+32*c.rnd.IntN(4))), "")
}

func (c *soaker) restart(p *soaked) { c.expect("restart", c.command("restart", p.name), "") }

func (c *soaker) remove(p *soaked) {
	c.forget(p)
	c.gone(p.name)
}

// opposite runs two opposite commands on a pod concurrently, then removes the pod.
func (c *soaker) opposite(p *soaked) {
	c.forget(p)
	pairs := [][2][]string{
		{{"stop", p.name}, {"start", p.name}},
		{{"pause", p.name}, {"rm", "-f", p.name}},
		{{"stop", p.name}, {"rm", "-f", p.name}},
		{{"pause", p.name}, {"stop", p.name}},
		{{"restart", p.name}, {"stop", p.name}},
		{{"update", p.name, "--memory", "96Mi"}, {"restart", p.name}},
		{{"exec", p.name, "--", "sleep", "100"}, {"rm", "-f", p.name}},
		{{"rm", "-f", p.name}, {"rm", "-f", p.name}},
	}
	pair := pairs[c.rnd.IntN(len(pairs))]
	var both sync.WaitGroup
	for _, args := range pair {
		both.Go(func() {
			a := c.command(args...)
			if took := time.Since(a.began); took > commandLimit/2 {
				c.t.Errorf("with its opposite it takes %v: %v", took, a.command)
			}
		})
	}
	both.Wait()
	c.count("opposite", false)
	c.gone(p.name)
}

// forget removes a pod from the client's pods and from the expected ones.
func (c *soaker) forget(p *soaked) {
	for i, own := range c.own {
		if own == p {
			c.own = append(c.own[:i], c.own[i+1:]...)
			break
		}
	}
	c.drop(p.name)
}

// gone removes a pod if it exists.
func (c *soaker) gone(name string) {
	for end := time.Now().Add(commandLimit); ; time.Sleep(200 * time.Millisecond) {
		a := c.command("rm", "-f", name)
		if a.code == 0 || strings.Contains(a.err.String(), "not found") {
			c.count("remove", false)
			return
		}
		c.expect("remove", a, "")
		if time.Now().After(end) {
			c.t.Errorf("it cannot be removed: %v", a.command)
			return
		}
	}
}
