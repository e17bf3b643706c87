package secure

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	// askAgainAfter is how long a client is let in without the API server being asked again.
	askAgainAfter = time.Minute
	// remembered is how long a client that was let in is let in while the API server does not answer, which is when metrics
	// are needed most. It is as long as tokens of pods are valid.
	remembered = time.Hour
	// retryAfter is the pause after an API server that did not answer.
	retryAfter = 10 * time.Second
	// answerWithin is how long a client waits for the API server, less than Prometheus does.
	answerWithin = 4 * time.Second
	// reviewQPS and reviewBurst bound how many clients the API server is asked about. They are apart from the other requests of
	// the program, so that clients with guessed tokens do not keep it from its work.
	reviewQPS   = 5
	reviewBurst = 10
	// room is for so many clients that were let in.
	room = 256
)

// reviewer lets clients in.
type reviewer struct {
	tokens  authenticationclient.TokenReviewInterface
	access  authorizationclient.SubjectAccessReviewInterface
	limit   flowcontrol.RateLimiter
	handler http.Handler
	log     *slog.Logger
	now     func() time.Time

	mu   sync.Mutex // guards what follows
	let  map[request]admission
	told bool // that reviews fail
}

// request is what a client asks for, with the digest of its token.
type request struct {
	token      [sha256.Size]byte
	verb, path string
}

// admission is when the API server let a client in, and when it is asked again.
type admission struct{ at, ask time.Time }

// Reviewed serves what the handler does, to clients that the API server lets get the path. The error is that of the
// configuration.
func Reviewed(config *rest.Config, log *slog.Logger, handler http.Handler) (http.Handler, error) {
	return newReviewer(config, log, handler)
}

func newReviewer(config *rest.Config, log *slog.Logger, handler http.Handler) (*reviewer, error) {
	config = rest.CopyConfig(config)
	config.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter()
	tokens, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("prepare to review tokens: %w", err)
	}
	access, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("prepare to review access: %w", err)
	}
	return &reviewer{
		tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews(), limit: flowcontrol.NewTokenBucketRateLimiter(reviewQPS, reviewBurst),
		handler: handler, log: log, now: time.Now, let: map[request]admission{},
	}, nil
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	scheme, token, _ := strings.Cut(q.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		refuse(w, http.StatusUnauthorized, "send a token, as Authorization: Bearer TOKEN")
		return
	}
	status, why := r.review(q.Context(), token, request{sha256.Sum256([]byte(token)), strings.ToLower(q.Method), q.URL.Path})
	if status != http.StatusOK {
		refuse(w, status, why)
		return
	}
	r.handler.ServeHTTP(w, q)
}

func refuse(w http.ResponseWriter, status int, why string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	http.Error(w, why, status)
}

// review tells whether a client is let in: OK, or the status that it gets, and why. A refusal is not kept, so that rights
// count at once, and guessed tokens take no room from what is kept.
func (r *reviewer) review(ctx context.Context, token string, q request) (status int, why string) {
	now := r.now()
	r.mu.Lock()
	last, known := r.let[q]
	r.mu.Unlock()
	if known && now.Before(last.ask) {
		return http.StatusOK, ""
	}
	status, why, err := r.ask(ctx, token, q)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil && known && now.Sub(last.at) < remembered:
		r.let[q] = admission{at: last.at, ask: now.Add(retryAfter)}
		return http.StatusOK, ""
	case err != nil:
		why = "the API server does not say who may read this: " + err.Error()
	case status == http.StatusOK:
		r.forget(now)
		r.let[q] = admission{at: now, ask: now.Add(askAgainAfter)}
		return status, ""
	}
	delete(r.let, q)
	return status, why
}

// ask returns what the API server says of a client: the status, why, and an error if there is no answer.
func (r *reviewer) ask(ctx context.Context, token string, q request) (status int, why string, err error) {
	// A client that has gone says nothing of the API server.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	if err := r.limit.Wait(ctx); err != nil {
		return http.StatusServiceUnavailable, "", fmt.Errorf("too many clients at a time: %w", err)
	}
	user, err := r.identify(ctx, token)
	switch {
	case err != nil:
	case user == nil:
		status, why = http.StatusUnauthorized, "the API server does not know this token, or it has expired"
	default:
		status, why, err = r.authorize(ctx, user, q)
	}
	r.tell(err)
	if err != nil {
		status = http.StatusServiceUnavailable
	}
	return status, why, err
}

// identify returns the client with the token, nil for one that the API server does not know, and an error if that does not answer.
func (r *reviewer) identify(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	answer, err := r.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil || !answer.Status.Authenticated {
		return nil, err
	}
	return &answer.Status.User, nil
}

// authorize returns the status for a client that is known, why, and an error if the API server does not answer.
func (r *reviewer) authorize(ctx context.Context, user *authenticationv1.UserInfo, q request) (status int, why string, err error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	answer, err := r.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: q.path, Verb: q.verb},
	}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return 0, "", err
	case !answer.Status.Allowed:
		return http.StatusForbidden, fmt.Sprintf("%s may not %s %s: bind the ClusterRole fairlead-metrics-reader to it", user.Username, q.verb, q.path), nil
	}
	return http.StatusOK, "", nil
}

// forget makes room. It needs mu.
func (r *reviewer) forget(now time.Time) {
	for q, a := range r.let {
		if now.Sub(a.at) >= remembered {
			delete(r.let, q)
		}
	}
	if len(r.let) >= room {
		clear(r.let)
	}
}

// tell logs when reviews begin to fail, and when they work again.
func (r *reviewer) tell(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil && r.told:
		r.log.Info("the API server reviews again who reads metrics")
		r.told = false
	case err != nil && !r.told:
		r.told = true
		r.log.Error("the API server does not review who reads metrics: clients of the last hour are let in, and others are not. "+
			"If it forbids that, bind the ClusterRole system:auth-delegator to this ServiceAccount, as the chart does", "error", err)
	}
}
