package critest

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Forward forwards ports like kubectl port-forward until end is called.
func Forward(
	ctx context.Context, t testing.TB, to string, ports ...string,
) (listening []portforward.ForwardedPort, end func()) {
	t.Helper()
	at, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", at)
	f, err := portforward.NewOnAddressesWithContext(ctx, dialer, []string{"127.0.0.1"}, ports, ready, io.Discard, io.Discard)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	end = func() {
		cancel()
		<-done //nolint:errcheck // it ends because its client has disconnected
	}
	select {
	case <-ready:
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	if listening, err = f.GetPorts(); err != nil {
		end()
		t.Fatal(err)
	}
	return listening, end
}
