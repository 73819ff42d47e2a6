package rows

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/tools/bench/containerd"
	"github.com/bulkhead-project/bulkhead/tools/bench/kubelet"
	"github.com/bulkhead-project/bulkhead/tools/bench/podman"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

// kubelets returns containerd with the small image, or why it is absent.
func (b *Bench) kubelets(ctx context.Context) (*containerd.Containerd, string, error) {
	if b.containerd != nil || b.containerdAbsent != "" {
		return b.containerd, b.containerdAbsent, nil
	}
	dir, err := b.mkdir("cd")
	if err != nil {
		return nil, "", err
	}
	c, absent, err := b.openContainerd(ctx, containerd.Options{Dir: dir, Account: b.account(dir)})
	b.containerd, b.containerdAbsent = c, absent
	return c, absent, err
}

// openContainerd opens containerd with the small image, or returns why it is absent.
func (b *Bench) openContainerd(ctx context.Context, o containerd.Options) (*containerd.Containerd, string, error) {
	c, err := containerd.Open(ctx, o)
	if err != nil {
		return nil, err.Error(), ctx.Err()
	}
	b.served = append(b.served, c) // Close closes it from here on
	b.Report.Facts.Version("containerd", c.Version)
	if err = c.LoadPause(ctx); err == nil {
		err = c.Load(ctx, b.Image, Small)
	}
	if err != nil {
		return nil, err.Error(), ctx.Err()
	}
	return c, "", nil
}

// inPodman is the rival podman run.
func inPodman(p *podman.Podman, absent string) rival {
	r := rival{name: "podman", what: "podman run --network none", absent: absent}
	if absent != "" {
		return r
	}
	r.account = p.Account
	r.once = func(ctx context.Context, _ int) error {
		_, err := p.Run(ctx, "run", "--rm", Small, "true")
		return err
	}
	r.start = func(ctx context.Context, n int) (time.Duration, error) {
		names := site.Names("burst", n)
		return atOnce(n, func(i int) error {
			_, err := p.Run(ctx, "run", "-d", "--name", names[i], Small, "sleep", "100000")
			return err
		})
	}
	r.end = func(ctx context.Context, n int) error {
		_, err := p.Run(ctx, append([]string{"rm", "--force", "--time", "0"}, site.Names("burst", n)...)...)
		return err
	}
	return r
}

// inContainerd is the rival containerd, called like by a kubelet.
func inContainerd(c *containerd.Containerd, absent string) rival {
	r := rival{name: "containerd", what: "containerd with runc through the CRI, on the host's network", absent: absent}
	if absent != "" {
		return r
	}
	r.account = c.Account
	var mu sync.Mutex
	pods := map[string]*kubelet.Pod{}
	r.once = func(ctx context.Context, number int) error {
		p, err := c.Start(ctx, fmt.Sprint("once", number), Small, "true")
		if err == nil {
			err = c.Ended(ctx, p)
		}
		if err != nil {
			return err
		}
		return c.End(ctx, p)
	}
	r.start = func(ctx context.Context, n int) (time.Duration, error) {
		names := site.Names("burst", n)
		return atOnce(n, func(i int) error {
			p, err := c.Start(ctx, names[i], Small, "sleep", "100000")
			mu.Lock()
			defer mu.Unlock()
			pods[names[i]] = p
			return err
		})
	}
	r.end = func(ctx context.Context, n int) error {
		names := site.Names("burst", n)
		_, err := atOnce(n, func(i int) error {
			mu.Lock()
			p := pods[names[i]]
			mu.Unlock()
			return c.End(ctx, p)
		})
		return err
	}
	return r
}
