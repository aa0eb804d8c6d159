"""The middleware of Annals: what surrounds each request, from the outside inwards.

`MIDDLEWARE` in annals/settings.py has these classes in this order, with those of Django between
them. A request passes them from 1 to 9, and its answer from 9 to 1.

1. no_store.py: forbids caches to keep the answer, and sets the content policy. It is the first,
   so that answers and errors of all the others have these headers too.
2. probes.py: answers /healthz, /readyz and /metrics. It stands before everything that writes a log
   line or needs the database. Probes come every few seconds, and a database may be down.
   Then Django's SecurityMiddleware redirects to https, and WhiteNoise serves static files.
3. request_log.py: gives the request its id, then logs and counts it. Everything that can fail is
   inside it, so that each error has an id and a line.
4. schema.py: refuses the request while the tables are not those of this release. It stands before
   the journal, which is a table too.
5. journal.py: writes who looked at what into the access journal, and sends the answer only after
   that is committed. It is outside sessions and views, so that no answer with data is sent without
   an entry.
6. deadline.py: gives the request its deadline. It is inside the journal, which must be written even
   if the deadline is over, and outside everything else that asks the database.
   Then Django's SessionMiddleware loads the session.
7. language.py: sets language and time zone. Django's middleware that follows can answer with a
   translated text. CommonMiddleware, CsrfViewMiddleware and AuthenticationMiddleware are next.
8. session_limit.py: ends a session that is idle or too old. It needs the session and the user.
   Django's messages and its header against frames are next.
9. compression.py: compresses answers of the API. It is the last one, next to the views.
"""
