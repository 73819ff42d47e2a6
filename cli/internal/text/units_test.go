package text

import (
	"testing"
	"time"
)

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1 kB", 1500: "1.5 kB", 999_600: "1 MB", 123_456_789: "123 MB",
		1_000_000_000_000: "1 TB", 5_000_000_000_000_000: "5e+03 TB",
	} {
		if got := Size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		3 * time.Second: "3s", 119 * time.Second: "119s", 5 * time.Minute: "5m", 47 * time.Hour: "47h", 72 * time.Hour: "3d",
	} {
		if got := Age(time.Now().Add(-d)); got != want {
			t.Errorf("age of %v: %q", d, got)
		}
	}
	if got := Age(time.Time{}); got != "<unknown>" {
		t.Errorf("no time: %q", got)
	}
}

func TestBrief(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 999: "999",
		1000: "1.0k", 9949: "9.9k", 9950: "10k", 999_499: "999k",
		999_500: "1.0M", 2.5e9: "2.5G", 3e18: "3000P",
	} {
		if got := Brief(n); got != want {
			t.Errorf("brief(%v) = %q, want %q", n, got, want)
		}
	}
}
