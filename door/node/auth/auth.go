// Package auth tells who asks a node's API, and whether they may: by client certificates of the
// cluster's authority and by bearer tokens, which the API server reviews, as it decides about each
// request. What it has answered is kept for a while.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
)

// How long answers hold, and how many are kept: a kubelet's figures.
const (
	tokenFor    = 2 * time.Minute
	refusedFor  = 10 * time.Second // a token that nobody has
	allowedFor  = 5 * time.Minute
	deniedFor   = 30 * time.Second
	keptAnswers = 1024
	askTimeout  = 10 * time.Second
	// maxReviews are the reviews of either kind at once: whoever reaches the node can ask for one of a token.
	maxReviews = 16
)

// User is who asks.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// ErrUnknown is matched where nobody is known to ask: there is neither a certificate nor a token, or
// none that holds.
var ErrUnknown = errors.New("not authenticated")

// ErrBusy is matched where too much is being asked of the API server already.
var ErrBusy = errors.New("too many requests are being reviewed")

// Webhook asks an API server. Its methods may be called at once.
type Webhook struct {
	client  kubernetes.Interface
	clients func() *x509.CertPool // of client certificates; nil is none
	node    string
	tokens  *cache.LRUExpireCache
	refused *cache.LRUExpireCache // tokens as well: who makes some up pushes out none that holds
	answers *cache.LRUExpireCache
	reviews chan struct{} // of tokens, one for each that is under way
	access  chan struct{} // the same of accesses
}

// New makes the reviewer of a node's requests. clients are the authorities of client certificates, as
// they are at that moment, nil for none.
func New(client kubernetes.Interface, node string, clients func() *x509.CertPool) *Webhook {
	return &Webhook{
		client: client, clients: clients, node: node,
		tokens: cache.NewLRUExpireCache(keptAnswers), refused: cache.NewLRUExpireCache(keptAnswers),
		answers: cache.NewLRUExpireCache(keptAnswers),
		reviews: make(chan struct{}, maxReviews), access: make(chan struct{}, maxReviews),
	}
}

// enter counts a review, until leave is called.
func enter(under chan struct{}) (leave func(), err error) {
	select {
	case under <- struct{}{}:
		return func() { <-under }, nil
	default:
		return nil, ErrBusy
	}
}

// Who tells who made a request. The error matches ErrUnknown or ErrBusy, or the API server could not be asked.
func (h *Webhook) Who(r *http.Request) (*User, error) {
	if u := h.certified(r); u != nil {
		return u, nil
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, ErrUnknown
	}
	key := sha256.Sum256([]byte(token))
	if u, found := h.tokens.Get(key); found {
		return u.(*User), nil
	}
	if _, found := h.refused.Get(key); found {
		return nil, ErrUnknown
	}
	leave, err := enter(h.reviews)
	if err != nil {
		return nil, fmt.Errorf("review a token: %w", err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	got, err := h.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review a token: %w", err)
	}
	if !got.Status.Authenticated {
		h.refused.Add(key, true, refusedFor)
		return nil, ErrUnknown
	}
	u := &User{Name: got.Status.User.Username, UID: got.Status.User.UID, Groups: got.Status.User.Groups, Extra: map[string][]string{}}
	for name, values := range got.Status.User.Extra {
		u.Extra[name] = values
	}
	h.tokens.Add(key, u, tokenFor)
	return u, nil
}

// certified is who a client certificate names, nil for none that holds.
func (h *Webhook) certified(r *http.Request) *User {
	roots := h.clients()
	if roots == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	others := x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		others.AddCert(c)
	}
	leaf := r.TLS.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: others, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil || leaf.Subject.CommonName == "" {
		return nil
	}
	groups := append([]string{}, leaf.Subject.Organization...)
	return &User{Name: leaf.Subject.CommonName, Groups: append(groups, "system:authenticated")}
}

// May tells whether a user may do what a verb says with a subresource of the node. The error matches ErrBusy, or
// the API server could not be asked.
func (h *Webhook) May(ctx context.Context, u *User, verb, subresource string) (bool, error) {
	key := fmt.Sprintf("%q %q %q %q %q %q", u.Name, u.UID, u.Groups, u.Extra, verb, subresource)
	if allowed, found := h.answers.Get(key); found {
		return allowed.(bool), nil
	}
	leave, err := enter(h.access)
	if err != nil {
		return false, fmt.Errorf("review an access: %w", err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range u.Extra {
		extra[name] = values
	}
	got, err := h.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Name, UID: u.UID, Groups: u.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: h.node,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review an access: %w", err)
	}
	hold := deniedFor
	if got.Status.Allowed {
		hold = allowedFor
	}
	h.answers.Add(key, got.Status.Allowed, hold)
	return got.Status.Allowed, nil
}
