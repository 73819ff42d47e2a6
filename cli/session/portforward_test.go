package session

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseForwards(t *testing.T) {
	got, err := parseForwards([]string{"80", "8080:80", ":http", "0:1"})
	want := []forwardedPort{{local: -1, remote: "80"}, {local: 8080, remote: "80"}, {local: 0, remote: "http"}, {local: 0, remote: "1"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(forwardedPort{})); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	for arg, want := range map[string]string{
		"": "must be [LOCAL:]REMOTE", "80:": "must be [LOCAL:]REMOTE", "1:2:3": "must be [LOCAL:]REMOTE",
		"x:80": "local port", "70000:80": "local port", "-1:80": "local port",
	} {
		if _, err := parseForwards([]string{arg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", arg, err)
		}
	}
}

func TestParseAddresses(t *testing.T) {
	got, err := parseAddresses([]string{"localhost", "0.0.0.0", "fe80::1"})
	want := []host{{ip: "127.0.0.1"}, {"::1", true}, {ip: "0.0.0.0"}, {ip: "fe80::1"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(host{})); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	if _, err := parseAddresses([]string{"example.org"}); err == nil || !strings.Contains(err.Error(), "IP address") {
		t.Errorf("a name: %v", err)
	}
}
